// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/packet_responder.h"

#include <arpa/inet.h>
#include <sched.h>

#include <cstring>
#include <memory>
#include <mutex>

#include "adapter/memory_table.h"
#include "engine/completion/poll.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/srq.h"
#include "engine/responder/peer_path.h"
#include "engine/responder/refusal.h"
#include "engine/responder/target_access.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/psn.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

using packets::ArrivedPiece;
using packets::Kind;
using packets::Verdict;

// So often a request is tried whose word or receive slot another thread uses for a moment. Then the peer is
// asked to come again later (RNR NAK).
constexpr int kMostAttempts = 64;

ibv_wr_opcode wr_opcode_of(const ArrivedPiece& piece) {
  switch (piece.kind) {
    case Kind::kSend:
      if (piece.has_invalidate) return IBV_WR_SEND_WITH_INV;
      return piece.has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    case Kind::kWrite:
      return piece.has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    case Kind::kRead:
      return IBV_WR_RDMA_READ;
    case Kind::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Kind::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Kind::kAtomicWrite:
      return kAtomicWrite;
  }
  return IBV_WR_SEND;
}

Request request_in(const ArrivedPiece& piece) {
  Request request{};
  request.opcode = wr_opcode_of(piece);
  request.flags = piece.solicited ? unsigned{IBV_SEND_SOLICITED} : 0u;
  request.immediate = piece.has_invalidate ? piece.immediate : htonl(piece.immediate);
  request.rkey = piece.rkey;
  request.remote_address = piece.remote_address;
  request.compare_add = piece.compare_add;
  request.swap = piece.swap;
  request.remote_srqn = piece.srqn;
  request.length = piece.length;
  request.done = piece.offset;
  return request;
}

Verdict verdict_of(const Response& response) {
  switch (response.answer) {
    case Answer::kAck:
      return Verdict::kDone;
    case Answer::kPartial:
    case Answer::kBusy:
    case Answer::kRnr:
      return Verdict::kRnr;
    case Answer::kLocal:
      return Verdict::kRemoteOperation;
    case Answer::kSilence:
    case Answer::kGone:
      return Verdict::kSilence;
    case Answer::kNak:
      break;
  }
  switch (find_vendor_error(static_cast<uint32_t>(response.error))->status) {
    case IBV_WC_REM_ACCESS_ERR:
      return Verdict::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
      return Verdict::kRemoteOperation;
    default:
      return Verdict::kInvalidRequest;
  }
}

}  // namespace

PacketResponder::PacketResponder(Qp& qp, const wire::NetAddress& from, uint32_t remote_qpn,
                                 uint32_t first_psn)
    : qp_(qp), next_psn_(first_psn) {
  requester_.process = qp.process;
  requester_.index = kRemoteIndex;
  requester_.qpn = remote_qpn;
  requester_.type = qp.type == IBV_QPT_XRC_RECV ? IBV_QPT_XRC_SEND : qp.type;
  if (qp.type == IBV_QPT_XRC_RECV) requester_.xrc_targets = std::make_shared<XrcTargets>();
  requester_.psn = first_psn;
  requester_.origin = {&from, 0};
  PeerPath& path = requester_.path;
  path.adapter = qp.process->shared_self();
  path.qp = qp.shared;
  path.index = qp.index;
  path.incarnation = qp.shared->incarnation;
  path.ports = 1u << (qp.shared->device & 31);
}

bool PacketResponder::is_ready() {
  requester_.mtu = mtu_bytes(qp_.shared->path_mtu);
  requester_.psn = next_psn_;
  const HazardGuard guard(requester_.process->hazards(), requester_.process->membership().slot());
  return requester_.mtu != 0 && check_path(requester_) == VendorError::none;
}

// What lies in receive slots is scattered by the thread that polls, or here.
void PacketResponder::let_eager_settle() {
  if (qp_.recv_cq != nullptr) scatter_eager(*qp_.recv_cq);
  Process& process = *requester_.process;
  const XrcTarget* const target = requester_.path.target;
  if (target == nullptr || target->adapter.get() != &process.self()) return;
  std::lock_guard lock(process.serving_mutex());
  if (Srq* const srq = process.srq(target->index); srq != nullptr && srq->cq != nullptr)
    scatter_eager(*srq->cq);
}

// The current WQE of an XRC SRQ is flushed.
void PacketResponder::abandon() {
  if (requester_.xrc_targets) abandon_current_wqe(requester_);
}

Response PacketResponder::carry_out(Request& request, const LocalBytes& local) {
  const SendOperation& operation = *find_send_operation(request.opcode);
  requester_.psn = message_psn_;
  for (int i = 0;; ++i) {
    const size_t before = bytes_.size();
    Response response{Answer::kGone};
    {
      const TargetAccess access(requester_, request.remote_srqn);
      if (access.refused != VendorError::none)
        response = refuse(requester_, request, access.refused);
      else if (access.unreachable == VendorError::none)
        response = respond(requester_, operation, request, local);
      if (access.unreachable == VendorError::none) raise_event_due(requester_.path);
    }
    const bool is_held_up = response.answer == Answer::kBusy ||
                            (response.answer == Answer::kPartial && (before == 0 || bytes_.size() == before));
    if (!is_held_up || i == kMostAttempts) return response;
    if (response.answer == Answer::kPartial)
      let_eager_settle();
    else
      sched_yield();
  }
}

// ---- SEND and WRITE ----

Verdict PacketResponder::take(const ArrivedPiece& piece) {
  if (piece.begins) message_psn_ = piece.psn;
  Request request = request_in(piece);
  const bool is_whole = piece.begins && piece.ends;
  const iovec range{const_cast<uint8_t*>(piece.bytes.data()), piece.bytes.size()};
  bytes_ = piece.bytes;
  requester_.payload = is_whole ? nullptr : this;
  const Response response = carry_out(request, {&range, is_whole && range.iov_len != 0 ? 1u : 0u});
  if (response.answer == Answer::kPartial && !is_whole && bytes_.empty()) return Verdict::kDone;
  const Verdict verdict = verdict_of(response);
  if (verdict == Verdict::kDone && piece.ends) next_psn_ = psn_next(piece.psn);
  return verdict;
}

bool PacketResponder::peek(std::byte* to, uint32_t size) {
  if (bytes_.size() < size) return false;  // a packet that is not the last one has 256 bytes or more
  std::memcpy(to, bytes_.data(), size);
  return true;
}

Placed PacketResponder::place(Request& request, const iovec* remote, size_t remotes) {
  iovec to[PeerAdapter::kMaxRanges + 1];
  size_t count = cut_ranges(remote, remotes, request.done, bytes_.size(), to, PeerAdapter::kMaxRanges - 1);
  // The last aligned word of a WRITE becomes visible last.
  if (count != 0 && request.done + bytes_.size() == request.length && request.remote_address != 0) {
    iovec& last = to[count - 1];
    const uint64_t word = ((reinterpret_cast<uintptr_t>(last.iov_base) + last.iov_len - 1) & 7) + 1;
    if (last.iov_len > word) {
      to[count++] = {static_cast<char*>(last.iov_base) + (last.iov_len - word), word};
      last.iov_len -= word;
    }
  }
  const iovec from{const_cast<uint8_t*>(bytes_.data()), bytes_.size()};
  const int error = requester_.path.memory->write(requester_.process->directory(), &from, 1, to, count);
  if (error != 0) return error == ESRCH ? Placed::kGone : Placed::kRemoteFault;
  request.done += static_cast<uint32_t>(bytes_.size());
  bytes_ = {};
  return request.done == request.length ? Placed::kWhole : Placed::kPartly;
}

uint8_t PacketResponder::rnr_timer() { return qp_.shared->min_rnr_timer; }

// ---- READ ----

// The bytes are fetched packet by packet later.
Placed PacketResponder::fetch(Request& request, const iovec&) {
  request.done = request.length;
  return Placed::kWhole;
}

Verdict PacketResponder::check_read(const ArrivedPiece& read) {
  Request request = request_in(read);
  request.done = 0;
  if (psn_distance(next_psn_, read.psn) < 0) return check_again(request);
  message_psn_ = read.psn;
  bytes_ = {};
  requester_.payload = this;
  const Verdict verdict = verdict_of(carry_out(request, {nullptr, 0}));
  if (verdict == Verdict::kDone) next_psn_ = psn_add(read.psn, packets_of(read.length, requester_.mtu));
  return verdict;
}

// A READ that comes again is carried out again (vol. 1, 9.7.5.1.2). State and rights are checked; order and
// counters are not concerned.
Verdict PacketResponder::check_again(const Request& read) {
  const TargetAccess access(requester_, read.remote_srqn);
  if (access.unreachable != VendorError::none) return Verdict::kSilence;
  const SharedQp& there = *qp_.shared;
  VendorError error = access.refused;
  if (error == VendorError::none)
    error = check_request(*find_send_operation(read.opcode), static_cast<ibv_qp_type>(there.type),
                          there.access, there.max_dest_rd_atomic, read.remote_address);
  return error == VendorError::none ? Verdict::kDone : verdict_of(refuse(requester_, read, error));
}

Verdict PacketResponder::fetch(const ArrivedPiece& read, uint32_t offset, std::span<uint8_t> to) {
  if (to.empty()) return Verdict::kDone;
  const TargetAccess access(requester_, read.srqn);
  if (access.unreachable != VendorError::none || access.refused != VendorError::none)
    return Verdict::kSilence;
  PeerPath& path = requester_.path;
  const Translation place =
      translate(path.memory->view(), read.rkey, true, path.remote_pd, MemoryUse::remote_read,
                read.remote_address, read.length, qp_.shared->qpn);
  const iovec here{to.data(), to.size()};
  const iovec there{reinterpret_cast<void*>(place.address + offset), to.size()};
  if (place.check == KeyCheck::kOk &&
      path.memory->read(requester_.process->directory(), &here, 1, &there, 1) == 0)
    return Verdict::kDone;
  return verdict_of(refuse(requester_, request_in(read), VendorError::remote_memory_gone));
}

// ---- atomics ----

Verdict PacketResponder::change(const ArrivedPiece& atomic, uint64_t* before) {
  message_psn_ = atomic.psn;
  Request request = request_in(atomic);
  request.done = 0;
  // What was there before; or what is to be there.
  const bool brings = packets::brings_value(atomic.kind);
  const iovec range{brings ? static_cast<void*>(before) : const_cast<uint8_t*>(atomic.bytes.data()),
                    sizeof *before};
  requester_.payload = nullptr;
  bytes_ = {};
  const Verdict verdict = verdict_of(carry_out(request, {&range, 1}));
  if (verdict == Verdict::kDone) next_psn_ = psn_next(atomic.psn);
  return verdict;
}

}  // namespace verbena
