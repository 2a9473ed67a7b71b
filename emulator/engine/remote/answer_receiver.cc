// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/answer_receiver.h"

#include <algorithm>

#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/requester.h"
#include "engine/responder/payload_stream.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::Flow;
using wire::FrameKind;

// The reason that the responder gives; `otherwise`: it gives none that is known here.
VendorError error_of(const AnswerHead& head, VendorError otherwise) {
  const VendorError error = find_vendor_error(static_cast<uint32_t>(head.value))->error;
  return error != VendorError::none ? error : otherwise;
}

bool try_lock_for_a_moment(SpinLock& lock) {
  constexpr int kMoment = 64;
  for (int i = 0; i < kMoment; ++i)
    if (lock.try_lock()) return true;
  return false;
}

}  // namespace

// The queue pair whose request is answered, with its send_lock held. nullptr: there is none any more. nullptr
// and *busy: its program is posting. That may take until the network has room, and waiting for it here would
// hold up all other queue pairs.
Qp* AnswerReceiver::lock_requester(RemotePeer& peer, const AnswerHead& head, bool* busy) {
  *busy = false;
  const Route* const route = connections_.find_route(head.target_qpn);
  if (route == nullptr) return nullptr;
  Qp& qp = *route->qp;
  if (*busy = !try_lock_for_a_moment(qp.send_lock); *busy) return nullptr;
  const RemotePath* path = path_of(qp);
  if (path != nullptr) path->expect_request(qp, head.number);
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (path != nullptr && path->peer.get() == &peer && path->qpn == head.source_qpn &&
      path->path_generation == head.path_generation &&
      path->epoch == peer.epoch.load(std::memory_order_relaxed) &&
      (state == IBV_QPS_RTS || state == IBV_QPS_SQD))
    return &qp;
  qp.send_lock.unlock();
  return nullptr;
}

// Places what has come of the answer to a READ. Under send_lock of the requester. False: the rest is of no
// use.
bool AnswerReceiver::scatter(Qp& qp, RemotePeer& peer, const AnswerHead& head) {
  SendRequest* const request = find_awaiting_response(qp, head.number);
  uint64_t& left = peer.bulk_in.left;
  if (request == nullptr || request->opcode != IBV_WR_RDMA_READ || request->length != head.size())
    return false;
  VendorError error = VendorError::none;
  {
    const HazardGuard guard(process_.hazards(), process_.membership().slot());
    iovec ranges[PeerAdapter::kMaxRanges];
    iovec to[PeerAdapter::kMaxRanges];
    size_t count = 0;
    error = find_local_bytes(qp, *find_send_operation(request->opcode), *request, ranges, &count);
    while (left != 0 && error == VendorError::none) {
      const uint64_t wanted = peer.in.size() != 0 ? std::min<uint64_t>(left, peer.in.size()) : left;
      const size_t tos = cut_ranges(ranges, count, request->done, wanted, to, PeerAdapter::kMaxRanges);
      size_t moved = wanted;
      if (peer.in.size() != 0) {
        const iovec from{const_cast<std::byte*>(peer.in.data()), wanted};
        if (process_.self().write(process_.directory(), &from, 1, to, tos) != 0)
          error = VendorError::local_memory_gone;
        else
          peer.in.consume(wanted);
      } else {
        const Flow flow = peer.in.receive_into(peer.fd, to, tos, wanted, sizeof(AnswerHead), &moved);
        if (flow == Flow::kFault) error = VendorError::local_memory_gone;
        if (flow == Flow::kEnded) peer.broken.store(true, std::memory_order_release);
        if (flow != Flow::kMoved && flow != Flow::kFault) return true;
        peer.bytes_in.store(peer.bytes_in.load(std::memory_order_relaxed) + moved, std::memory_order_relaxed);
      }
      if (error != VendorError::none) break;
      left -= moved;
      request->done += static_cast<uint32_t>(moved);
    }
  }
  if (error != VendorError::none || request->done == request->length) responded(qp, *request, error);
  return error == VendorError::none;
}

// `qp`: nullptr if nothing awaits the data.
void AnswerReceiver::take_read_data(Qp* qp, RemotePeer& peer, const wire::Frame& frame) {
  const AnswerHead& head = frame.head.answer;
  peer.bulk_in = {};
  peer.bulk_in.left = frame.payload;
  peer.bulk_in.answer = head;
  SendRequest* const request = qp != nullptr ? find_awaiting_response(*qp, head.number) : nullptr;
  // Chunks come in order. Anything else is the rest of a READ that was given up.
  if (request != nullptr && request->done == head.offset()) peer.bulk_in.is_answer = scatter(*qp, peer, head);
  if (peer.bulk_in.left == 0) peer.bulk_in.is_answer = false;
}

void AnswerReceiver::take_atomic_result(Qp& qp, const AnswerHead& head) {
  SendRequest* const request = find_awaiting_response(qp, head.number);
  if (request == nullptr || request->opcode == IBV_WR_RDMA_READ) return;
  VendorError error = VendorError::none;
  {
    const HazardGuard guard(process_.hazards(), process_.membership().slot());
    iovec ranges[PeerAdapter::kMaxRanges];
    size_t count = 0;
    error = find_local_bytes(qp, *find_send_operation(request->opcode), *request, ranges, &count);
    uint64_t value = head.value;
    const iovec from{&value, sizeof value};
    if (error == VendorError::none && count != 0 &&
        process_.self().write(process_.directory(), &from, 1, ranges, count) != 0)
      error = VendorError::local_memory_gone;
  }
  responded(qp, *request, error);
}

void AnswerReceiver::hand_to_requester(Qp& qp, const AnswerHead& head) {
  switch (head.kind) {
    case FrameKind::kAck:
      return acknowledged(qp, head.number);
    case FrameKind::kNak:
      return refused(qp, head.number, error_of(head, VendorError::remote_operation_failed));
    case FrameKind::kRnr:
      return not_received(qp, head.number, head.rnr_timer);
    case FrameKind::kReady:
      return ready_to_receive(qp, head.number);
    case FrameKind::kNotReady:
      return not_ready(qp, head.number, error_of(head, VendorError::peer_not_ready));
    default:
      return take_atomic_result(qp, head);
  }
}

FrameResult AnswerReceiver::take(RemotePeer& peer, const wire::Frame& frame) {
  const AnswerHead& head = frame.head.answer;
  bool busy = false;
  Qp* const qp = lock_requester(peer, head, &busy);
  if (busy) return FrameResult::kStalled;
  peer.in.consume(frame.head_size);
  const bool is_read_data = head.kind == FrameKind::kReadData;
  if (is_read_data)
    take_read_data(qp, peer, frame);
  else if (qp != nullptr)
    hand_to_requester(*qp, head);
  if (qp != nullptr) qp->send_lock.unlock();
  return is_read_data && peer.bulk_in.is_answer ? FrameResult::kMore : FrameResult::kDone;
}

FrameResult AnswerReceiver::take_more(RemotePeer& peer) {
  auto& bulk = peer.bulk_in;
  bool busy = false;
  Qp* const qp = lock_requester(peer, bulk.answer, &busy);
  if (busy) return FrameResult::kStalled;
  bulk.is_answer = qp != nullptr && scatter(*qp, peer, bulk.answer) && bulk.left != 0;
  if (qp != nullptr) qp->send_lock.unlock();
  return bulk.is_answer ? FrameResult::kMore : FrameResult::kDone;
}

void AnswerReceiver::forget(RemotePeer& peer, uint32_t qpn) {
  if (peer.bulk_in.is_answer && peer.bulk_in.answer.target_qpn == qpn) peer.bulk_in.is_answer = false;
}

}  // namespace verbena
