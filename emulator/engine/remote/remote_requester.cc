// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_requester.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "adapter/prefetch.h"
#include "engine/objects/qp.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote_path.h"
#include "engine/responder/peer_path.h"
#include "engine/responder/refusal.h"
#include "engine/responder/responder.h"
#include "engine/responder/target_access.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/route.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::FrameKind;
using wire::RequestHead;

ibv_qp_type requester_type(uint8_t responder) {
  return responder == IBV_QPT_XRC_RECV ? IBV_QPT_XRC_SEND : static_cast<ibv_qp_type>(responder);
}

ibv_qp_type type_of(const RequestHead& head) { return static_cast<ibv_qp_type>(head.connection & 0xf); }

// nullptr: not an operation that is sent.
const SendOperation* operation_of(const RequestHead& head) {
  if (head.opcode > kAtomicWrite || head.opcode == IBV_WR_LOCAL_INV || head.opcode == IBV_WR_BIND_MW)
    return nullptr;
  return find_send_operation(static_cast<ibv_wr_opcode>(head.opcode));
}

// Does the frame have as many bytes as it must? Our requesters check the rest before they send.
bool is_whole(const RequestHead& head, const SendOperation& operation, uint32_t payload) {
  if (operation.atomic && head.size != sizeof(uint64_t)) return false;
  if (brings_response(operation)) return payload == 0;
  return head.size <= kCopied ? payload == head.size : payload != 0;
}

Request request_of(const RequestHead& head) {
  Request request{};
  request.number = head.number;
  request.opcode = static_cast<ibv_wr_opcode>(head.opcode);
  request.flags = (head.flags & RequestHead::kSolicited) != 0 ? unsigned{IBV_SEND_SOLICITED} : 0u;
  request.immediate = head.immediate;
  request.rkey = head.rkey;
  request.remote_address = head.remote_address;
  request.compare_add = head.compare_add;
  request.swap = head.swap;
  request.remote_srqn = head.srqn;
  request.length = head.size;
  return request;
}

}  // namespace

RemoteRequester::RemoteRequester(RemotePeer& peer, Process& process) : peer_(peer) {
  requester_.process = &process;
  requester_.index = kRemoteIndex;
  requester_.origin = {&peer.address, peer.id.slot};
}

void RemoteRequester::expect_request() const {
  const PeerPath& path = requester_.path;
  prefetch(&target_qpn_, &results_);
  prefetch(&requester_, &requester_.peer_head + 1);
  const SharedQp* const there = path.qp;
  if (there == nullptr) return;
  prefetch(&there->responder_state, &there->in_use);
  prefetch(&there->expected_psn);
  prefetch(&there->pending_flags);
  prefetch(&there->requests_out);
  if (const Qp* const owner = requester_.process->qp(path.index); owner != nullptr) {
    prefetch(&owner->process);
    prefetch(&owner->recv_lock, &owner->scattered + 1);
  }
  if (path.receives.ready == nullptr) return;
  prefetch(&path.receives.ready[path.taken & path.receives.mask()]);
  prefetch(&path.receives.wqe(path.taken));
}

VendorError RemoteRequester::aim(const RequestHead& head) {
  Process& process = *requester_.process;
  PeerPath& path = requester_.path;
  if (path.qp != nullptr && path.qp->in_use.load(std::memory_order_acquire) != 0 &&
      path.qp->incarnation == path.incarnation && path.qp->qpn == head.target_qpn &&
      type_of(head) == requester_.type)
    return VendorError::none;
  QpnEntry found;
  if (!process.directory().find_qpn(head.target_qpn, &found) || found.slot != process.membership().slot())
    return VendorError::peer_gone;
  SharedQp* const there = process.view().qp(found.qp_index);
  if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != head.target_qpn)
    return VendorError::peer_gone;
  if (there->type != IBV_QPT_RC && there->type != IBV_QPT_UC && there->type != IBV_QPT_XRC_RECV)
    return VendorError::peer_mismatch;
  // The opcode of a packet names the requester's type, and a queue pair of another type drops it (rxe_recv.c,
  // check_type_state()).
  if (type_of(head) != requester_type(there->type)) return VendorError::peer_mismatch;
  process.peers().get(process.membership(), process.membership().slot(), process.membership().generation(),
                      &path.adapter);
  path.qp = there;
  path.index = found.qp_index;
  path.incarnation = there->incarnation;
  path.port = QpPath::unpack(there->path.load(std::memory_order_acquire)).port;
  path.ports = port_bit(there->device, path.port);
  path.generation = path.responder_state = 0;
  target_qpn_ = head.target_qpn;
  requester_.qpn = head.source_qpn;
  requester_.type = requester_type(there->type);
  if (const Qp* const responder = process.qp(found.qp_index); responder != nullptr)
    requester_.route = reversed(responder->requester.route);
  if (requester_.type == IBV_QPT_XRC_SEND && !requester_.xrc_targets)
    requester_.xrc_targets = std::make_shared<XrcTargets>();
  latched_ = false;
  path_generation_ = 0;
  return VendorError::none;
}

// False: the request is of an earlier path generation.
bool RemoteRequester::begin_path_generation(const RequestHead& head) {
  if (latched_ && head.path_generation < path_generation_) return false;
  if (latched_ && head.path_generation == path_generation_) return true;
  give_back();
  path_generation_ = head.path_generation;
  // Requests below `number` may have come before the queue pair was here: they come again.
  expected_ = head.finished_below;
  latched_ = true;
  results_kept_ = 0;
  unreachable_is_explained_ = false;
  request_.done = 0;
  return true;
}

void RemoteRequester::give_back() {
  if (requester_.xrc_targets) abandon_current_wqe(requester_);
}

AnswerHead RemoteRequester::acknowledgement() const {
  return {sizeof(AnswerHead), FrameKind::kAck,  0,         {}, requester_.qpn,
          target_qpn_,        path_generation_, expected_, 0};
}

void RemoteRequester::answer(FrameKind kind, uint64_t number, uint64_t value, uint8_t timer) {
  peer_.answers_due = true;
  std::lock_guard lock(peer_.out_mutex);
  append_answer(
      peer_,
      {sizeof(AnswerHead), kind, timer, {}, requester_.qpn, target_qpn_, path_generation_, number, value});
}

void RemoteRequester::remember_atomic(uint64_t number, uint64_t value) {
  const size_t place = results_kept_++ % kResults;
  if (place >= results_.size()) results_.resize(place + 1);
  results_[place] = {number, value};
}

// The request was carried out before its connection broke, and the answer was lost.
Taken RemoteRequester::repeat(const RequestHead& head, const SendOperation& operation) {
  if (!brings_response(operation)) {
    acknowledgement_due = is_acknowledged(requester_.type);
    return Taken::kSkip;
  }
  if (operation.atomic) {
    for (uint64_t i = 0; i < std::min<uint64_t>(results_kept_, kResults); ++i)
      if (results_[i].number == head.number) {
        answer(FrameKind::kAtomicAnswer, head.number, results_[i].value);
        return Taken::kSkip;
      }
    answer(FrameKind::kNak, head.number, static_cast<uint64_t>(VendorError::remote_no_read_resources));
    return Taken::kSkip;
  }
  // A READ is carried out once more (vol. 1, 9.7.5.1.2). State and rights are checked again; order and
  // counters are not concerned.
  const uint64_t generation = requester_.path.generation;
  const TargetAccess access(requester_, head.srqn);
  if (access.unreachable != VendorError::none) {
    answer(FrameKind::kNotReady, head.number, static_cast<uint64_t>(access.unreachable));
    return Taken::kSkip;
  }
  if (requester_.path.generation != generation) return Taken::kSkip;
  const SharedQp& there = *requester_.path.qp;
  VendorError error = access.refused;
  if (error == VendorError::none)
    error = check_request(operation, static_cast<ibv_qp_type>(there.type), there.access,
                          there.max_dest_rd_atomic, head.remote_address);
  if (error != VendorError::none) {
    answer(FrameKind::kNak, head.number,
           static_cast<uint64_t>(refuse(requester_, request_of(head), error).error));
    return Taken::kSkip;
  }
  if (head.size == 0) {
    answer(FrameKind::kReadData, head.number, 0);
    return Taken::kSkip;
  }
  Request again = request_of(head);
  const Translation place =
      translate(requester_.path.memory->view(), head.rkey, true, requester_.path.remote_pd,
                MemoryUse::remote_read, head.remote_address, head.size, target_qpn_);
  const Placed placed = place.check == KeyCheck::kOk
                            ? fetch(again, {reinterpret_cast<void*>(place.address), head.size})
                            : Placed::kRemoteFault;
  if (placed != Placed::kWhole)
    answer(FrameKind::kNak, head.number, static_cast<uint64_t>(VendorError::remote_memory_gone));
  return Taken::kSkip;
}

Taken RemoteRequester::take(const RequestHead& head, const std::byte* bytes, uint32_t payload) {
  const SendOperation* const operation = operation_of(head);
  if (operation == nullptr || !is_whole(head, *operation, payload)) {
    VERBENA_WARN(peer_request, "QP 0x%06x: a request that cannot be: operation %u, %u of %u bytes",
                 target_qpn_, head.opcode, payload, head.size);
    peer_.broken.store(true, std::memory_order_release);
    return Taken::kSkip;
  }
  if (!begin_path_generation(head)) return Taken::kSkip;
  if (requester_.type == IBV_QPT_UC) {
    // UC: what is missing is not sent again, and a message without its beginning is dropped.
    if (head.offset == 0) expected_ = head.number, request_.done = 0;
    if (head.number != expected_ || head.offset != request_.done) return Taken::kSkip;
  } else {
    if (head.finished_below > expected_) expected_ = head.finished_below, request_.done = 0;
    if (head.number < expected_) return repeat(head, *operation);
    if (head.number > expected_) return Taken::kSkip;
    if (head.offset == 0) request_.done = 0;
    if (head.offset != request_.done) return Taken::kSkip;
  }
  if (request_.done == 0) {
    request_ = request_of(head);
  } else if (request_.length != head.size || request_.opcode != static_cast<ibv_wr_opcode>(head.opcode) ||
             request_.remote_srqn != head.srqn) {
    return Taken::kSkip;  // a chunk of another message than the one that was checked
  }
  const uint32_t mtu = mtu_bytes(head.connection >> 4);
  if (mtu == 0) return Taken::kSkip;
  requester_.mtu = mtu;
  requester_.psn = head.psn;
  const bool answered = brings_response(*operation);
  const bool large = head.size > kCopied && !answered;
  requester_.payload = large || (answered && !operation->atomic) ? this : nullptr;
  if (large) {
    peer_.bulk_in.left = payload;
    return execute(head, nullptr, 0);
  }
  iovec range{const_cast<std::byte*>(bytes), payload};
  if (operation->atomic && answered) range = {&atomic_result_, sizeof atomic_result_};
  return execute(head, &range, range.iov_len != 0 ? 1 : 0);
}

Taken RemoteRequester::go_on(const RequestHead& head) { return execute(head, nullptr, 0); }

Taken RemoteRequester::execute(const RequestHead& head, const iovec* ranges, size_t count) {
  const SendOperation& operation = *operation_of(head);
  const uint64_t generation = requester_.path.generation;
  const TargetAccess access(requester_, head.srqn);
  if (access.refused != VendorError::none)
    return judge(head, operation, refuse(requester_, request_, access.refused), VendorError::none);
  const VendorError unreachable = access.unreachable;
  Response response{Answer::kGone};
  if (unreachable == VendorError::none) {
    // A responder that was reset does not know the chunks that came before.
    if (requester_.path.generation != generation && request_.done != 0) return Taken::kSkip;
    response = respond(requester_, operation, request_, {ranges, count});
  }
  const Taken taken = judge(head, operation, response, unreachable);
  if (unreachable == VendorError::none) raise_event_due(requester_.path);
  return taken;
}

Taken RemoteRequester::judge(const RequestHead& head, const SendOperation& operation,
                             const Response& response, VendorError unreachable) {
  const bool acknowledged = is_acknowledged(requester_.type);
  if (unreachable != VendorError::none) {
    if (!std::exchange(unreachable_is_explained_, true)) explain_unreachable(requester_, unreachable);
    if (acknowledged) answer(FrameKind::kNotReady, head.number, static_cast<uint64_t>(unreachable));
    request_.done = 0;
    return Taken::kSkip;
  }
  switch (response.answer) {
    case Answer::kAck:
      expected_ = head.number + 1;
      request_.done = 0;
      if (operation.atomic && brings_response(operation)) {
        remember_atomic(head.number, atomic_result_);
        answer(FrameKind::kAtomicAnswer, head.number, atomic_result_);
      } else if (brings_response(operation)) {
        if (head.size == 0) answer(FrameKind::kReadData, head.number, 0);
      } else {
        acknowledgement_due = acknowledged;
      }
      return Taken::kDone;
    case Answer::kPartial:
      if (requester_.payload != this || brings_response(operation)) return Taken::kStalled;
      return peer_.bulk_in.left == 0 ? Taken::kDone : Taken::kMore;
    case Answer::kBusy:
      return Taken::kStalled;
    case Answer::kRnr:
      if (!acknowledged) break;
      answer(FrameKind::kRnr, head.number, 0, requester_.path.qp->min_rnr_timer);
      if (!requester_.xrc_targets) ask_to_be_woken();
      break;
    case Answer::kNak:
      if (acknowledged) answer(FrameKind::kNak, head.number, static_cast<uint64_t>(response.error));
      break;
    case Answer::kLocal:
      if (acknowledged)
        answer(FrameKind::kNak, head.number, static_cast<uint64_t>(VendorError::remote_operation_failed));
      break;
    case Answer::kSilence:
      if (acknowledged)
        answer(FrameKind::kNotReady, head.number, static_cast<uint64_t>(VendorError::peer_silent));
      break;
    case Answer::kGone:
      if (acknowledged)
        answer(FrameKind::kNotReady, head.number, static_cast<uint64_t>(VendorError::peer_gone));
      break;
  }
  request_.done = 0;
  return Taken::kSkip;
}

// A thread that posts a receive WQE reads the flag without a fence and may miss it. Then the requester tries
// again when its RNR timer ends.
void RemoteRequester::ask_to_be_woken() {
  requester_.path.qp->requester_waits.store(1, std::memory_order_seq_cst);
  if (SharedSrq* srq = requester_.path.shared_receives.shared; srq != nullptr)
    srq->requesters_wait.store(1, std::memory_order_seq_cst);
  if (!std::exchange(waits_for_receive, true)) peer_.waiting_for_receives.push_back(this);
}

bool RemoteRequester::tell_of_receives() {
  if (requester_.path.qp->incarnation != requester_.path.incarnation) return true;
  if (requester_.path.qp->requester_waits.load(std::memory_order_seq_cst) != 0) return false;
  answer(FrameKind::kReady, expected_, 0);
  return true;
}

bool RemoteRequester::peek(std::byte* to, uint32_t size) {
  wire::InStream& in = peer_.in;
  // Our requesters send so much with the first frame.
  if (peer_.bulk_in.left < size) peer_.broken.store(true, std::memory_order_release);
  if (peer_.bulk_in.left < size) return false;
  while (in.size() < size) {
    bool all = false;
    const wire::Flow flow = in.receive(peer_.fd, wire::InStream::kCapacity, &all);
    if (flow == wire::Flow::kEnded) peer_.broken.store(true, std::memory_order_release);
    if (flow != wire::Flow::kMoved) return false;
  }
  std::memcpy(to, in.data(), size);
  return true;
}

Placed RemoteRequester::place(Request& request, const iovec* remote, size_t remotes) {
  wire::InStream& in = peer_.in;
  const bool ours = requester_.path.memory == &requester_.process->self();
  uint64_t& left = peer_.bulk_in.left;
  while (left != 0) {
    iovec to[PeerAdapter::kMaxRanges + 1];
    if (in.size() != 0 || !ours) {
      bool all = false;
      if (in.size() == 0) {
        const wire::Flow flow = in.receive(peer_.fd, wire::InStream::kCapacity, &all);
        if (flow == wire::Flow::kEnded) peer_.broken.store(true, std::memory_order_release);
        if (flow != wire::Flow::kMoved) return Placed::kPartly;
      }
      const uint64_t size = std::min<uint64_t>(left, in.size());
      const size_t count = cut_ranges(remote, remotes, request.done, size, to, PeerAdapter::kMaxRanges - 1);
      const iovec from{const_cast<std::byte*>(in.data()), size};
      const int error = requester_.path.memory->write(requester_.process->directory(), &from, 1, to, count);
      if (error != 0) return error == ESRCH ? Placed::kGone : Placed::kRemoteFault;
      in.consume(size);
      left -= size;
      request.done += static_cast<uint32_t>(size);
      continue;
    }
    size_t count = cut_ranges(remote, remotes, request.done, left, to, PeerAdapter::kMaxRanges - 1);
    // The last aligned word of a WRITE becomes visible last: the kernel fills range after range.
    if (request.done + left == request.length && request.remote_address != 0) {
      iovec& last = to[count - 1];
      const uint64_t word = ((reinterpret_cast<uintptr_t>(last.iov_base) + last.iov_len - 1) & 7) + 1;
      if (last.iov_len > word) {
        to[count] = {static_cast<char*>(last.iov_base) + (last.iov_len - word), word};
        last.iov_len -= word;
        ++count;
      }
    }
    size_t moved = 0;
    const wire::Flow flow = in.receive_into(peer_.fd, to, count, left, sizeof(RequestHead), &moved);
    if (flow == wire::Flow::kFault) return Placed::kRemoteFault;
    if (flow == wire::Flow::kEnded) peer_.broken.store(true, std::memory_order_release);
    if (flow != wire::Flow::kMoved) return Placed::kPartly;
    left -= moved;
    request.done += static_cast<uint32_t>(moved);
    peer_.bytes_in.store(peer_.bytes_in.load(std::memory_order_relaxed) + moved, std::memory_order_relaxed);
  }
  return request.done == request.length ? Placed::kWhole : Placed::kPartly;
}

Placed RemoteRequester::fetch(Request& request, const iovec& remote) {
  const AnswerHead head{static_cast<uint32_t>(sizeof(AnswerHead) + request.length),
                        FrameKind::kReadData,
                        0,
                        {},
                        requester_.qpn,
                        target_qpn_,
                        path_generation_,
                        request.number,
                        uint64_t{request.length} << 32};
  peer_.answers_due = true;
  std::lock_guard lock(peer_.out_mutex);
  if (request.length <= kCopied && peer_.reads.empty() &&
      peer_.out.room() >= kAnswersRoom + sizeof head + request.length) {
    std::byte* const at = peer_.out.append(sizeof head + request.length);
    const iovec to{at + sizeof head, request.length};
    const int error = requester_.path.memory->read(requester_.process->directory(), &to, 1, &remote, 1);
    if (error != 0) {
      peer_.out.take_back(sizeof head + request.length);
      return error == ESRCH ? Placed::kGone : Placed::kRemoteFault;
    }
    std::memcpy(at, &head, sizeof head);
  } else {
    // A correct requester has no more in flight than max_dest_rd_atomic.
    if (peer_.reads.size() >= kMostReadsOfOne * (peer_.remote_requesters.size() + 1))
      return Placed::kRemoteFault;
    peer_.reads.push_back({head,
                           {request.rkey, true, requester_.path.remote_pd, target_qpn_,
                            MemoryUse::remote_read, request.remote_address, request.length},
                           requester_.path.memory,
                           requester_.path.adapter,
                           0});
    if (requester_.path.target != nullptr) peer_.reads.back().keeps = requester_.path.target->adapter;
  }
  request.done = request.length;
  return Placed::kWhole;
}

}  // namespace verbena
