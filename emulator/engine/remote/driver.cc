// SPDX-License-Identifier: BSD-2-Clause
//
// What comes from other nodes is taken from the sockets and carried out, by whoever has the turn.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "adapter/clock.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote.h"
#include "engine/remote/remote_requester.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/requester.h"
#include "engine/responder/payload_stream.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::Flow;
using wire::Frame;
using wire::FrameKind;
using wire::RequestHead;

// The reason that the responder gives; `otherwise`: it gives none that is known.
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

// ---- requests ---------------------------------------------------------------------------------------------

RemoteRequester* Remote::remote_requester_for(RemotePeer& peer, const RequestHead& head) {
  const uint64_t key = uint64_t{head.source_qpn} << 32 | head.target_qpn;
  const auto known = peer.remote_requesters.find(key);
  VendorError error = VendorError::none;
  if (known != peer.remote_requesters.end()) {
    known->second->expect_request();
    if (known->second->aim(head) == VendorError::none) return known->second.get();
    let_go(peer, *known->second);
    peer.remote_requesters.erase(known);
  }
  // The queue pair there must be the one that ours was told of, at that address, and of one process.
  const auto route = routes_.find(head.target_qpn);
  if (route == routes_.end())
    error = VendorError::peer_not_ready;
  else if (route->second.path->qpn != head.source_qpn || route->second.path->to != peer.address ||
           (route->second.peer && route->second.peer.get() != &peer))
    error = VendorError::peer_mismatch;
  if (error == VendorError::none) {
    if (!route->second.peer)
      for (const std::shared_ptr<RemotePeer>& each : peers_)
        if (each.get() == &peer) bind(route->second, each);
    auto made = std::make_unique<RemoteRequester>(peer, process_);
    error = made->aim(head);
    if (error == VendorError::none) return (peer.remote_requesters[key] = std::move(made)).get();
  }
  std::lock_guard out(peer.out_mutex);
  append_answer(peer, {sizeof(AnswerHead),
                       FrameKind::kNotReady,
                       0,
                       {},
                       head.source_qpn,
                       head.target_qpn,
                       head.path_generation,
                       head.number,
                       static_cast<uint64_t>(error)});
  return nullptr;
}

// It is about to go.
void Remote::let_go(RemotePeer& peer, RemoteRequester& remote_requester) {
  remote_requester.give_back();
  std::erase(peer.acknowledgements_due, &remote_requester);
  std::erase(peer.waiting_for_receives, &remote_requester);
  if (peer.bulk_in.remote_requester == &remote_requester) peer.bulk_in.remote_requester = nullptr;
}

Remote::Next Remote::after(RemotePeer& peer, RemoteRequester& remote_requester, Taken taken) {
  if (remote_requester.acknowledgement_due &&
      (peer.acknowledgements_due.empty() || peer.acknowledgements_due.back() != &remote_requester))
    peer.acknowledgements_due.push_back(&remote_requester);
  switch (taken) {
    case Taken::kDone:
    case Taken::kSkip:
      peer.bulk_in.remote_requester = nullptr;
      return Next::kOn;
    case Taken::kMore:
      return Next::kMore;
    case Taken::kStalled:
      return Next::kStop;
  }
  return Next::kStop;
}

Remote::Next Remote::take_request(RemotePeer& peer, const Frame& frame) {
  const RequestHead& head = frame.head.request;
  const bool large = head.size > kCopied && frame.payload != 0;
  if (!large && peer.in.size() < frame.head_size + frame.payload) return Next::kMore;
  RemoteRequester* const remote_requester = remote_requester_for(peer, head);
  if (large) {
    peer.in.consume(frame.head_size);
    peer.bulk_in = {};
    peer.bulk_in.left = frame.payload;
    peer.bulk_in.remote_requester = remote_requester;
    peer.bulk_in.request = head;
    return remote_requester == nullptr
               ? Next::kOn
               : after(peer, *remote_requester, remote_requester->take(head, nullptr, frame.payload));
  }
  Next next = Next::kOn;
  if (remote_requester != nullptr)
    next = after(peer, *remote_requester,
                 remote_requester->take(head, peer.in.data() + frame.head_size, frame.payload));
  if (next == Next::kOn) peer.in.consume(frame.head_size + frame.payload);
  return next;
}

void Remote::acknowledge(RemotePeer& peer) {
  for (RemoteRequester* remote_requester : peer.acknowledgements_due) {
    if (!remote_requester->acknowledgement_due) continue;
    remote_requester->acknowledgement_due = false;
    append_answer(peer, remote_requester->acknowledgement());
  }
  peer.acknowledgements_due.clear();
}

// ---- answers ----------------------------------------------------------------------------------------------

// Whose request the answer is about, with its send_lock; nullptr: nobody's any more, or, *busy, its program
// is posting: that may take as long as the network has room, and whoever waited for it here would keep the
// others waiting, too.
Qp* Remote::lock_requester(RemotePeer& peer, const AnswerHead& head, bool* busy) {
  *busy = false;
  const auto route = routes_.find(head.target_qpn);
  if (route == routes_.end()) return nullptr;
  Qp& qp = *route->second.qp;
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

// Puts what has come of the answer to a READ where it belongs. Under the requester's send_lock. False: the
// rest is of no use.
bool Remote::scatter(Qp& qp, RemotePeer& peer, const AnswerHead& head) {
  SendRequest* const request = find_awaiting_response(qp, head.number);
  uint64_t& left = peer.bulk_in.left;
  if (request == nullptr || request->opcode != IBV_WR_RDMA_READ || request->length != head.size())
    return false;
  VendorError error = VendorError::none;
  {
    const uint32_t own_slot = process_.membership().slot();
    const HazardGuard guard(process_.directory(), own_slot, own_slot);
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

Remote::Next Remote::take_answer_frame(RemotePeer& peer, const Frame& frame) {
  const AnswerHead& head = frame.head.answer;
  bool busy = false;
  Qp* const qp = lock_requester(peer, head, &busy);
  if (busy) return Next::kStop;
  peer.in.consume(frame.head_size);
  if (head.kind == FrameKind::kReadData) {
    peer.bulk_in = {};
    peer.bulk_in.left = frame.payload;
    peer.bulk_in.answer = head;
    SendRequest* const request = qp != nullptr ? find_awaiting_response(*qp, head.number) : nullptr;
    // Chunks come in order: anything else is the rest of what has been given up.
    if (request != nullptr && request->done == head.offset())
      peer.bulk_in.is_answer = scatter(*qp, peer, head);
    if (peer.bulk_in.left == 0) peer.bulk_in.is_answer = false;
    if (qp != nullptr) qp->send_lock.unlock();
    return peer.bulk_in.is_answer ? Next::kMore : Next::kOn;
  }
  if (qp == nullptr) return Next::kOn;
  switch (head.kind) {
    case FrameKind::kAck:
      acknowledged(*qp, head.number);
      break;
    case FrameKind::kNak:
      refused(*qp, head.number, error_of(head, VendorError::remote_operation_failed));
      break;
    case FrameKind::kRnr:
      not_received(*qp, head.number, head.rnr_timer);
      break;
    case FrameKind::kReady:
      ready_to_receive(*qp, head.number);
      break;
    case FrameKind::kNotReady:
      not_ready(*qp, head.number, error_of(head, VendorError::peer_not_ready));
      break;
    default: {
      SendRequest* const request = find_awaiting_response(*qp, head.number);
      if (request == nullptr || request->opcode == IBV_WR_RDMA_READ) break;
      const uint32_t own_slot = process_.membership().slot();
      VendorError error = VendorError::none;
      {
        const HazardGuard guard(process_.directory(), own_slot, own_slot);
        iovec ranges[PeerAdapter::kMaxRanges];
        size_t count = 0;
        error = find_local_bytes(*qp, *find_send_operation(request->opcode), *request, ranges, &count);
        uint64_t value = head.value;
        const iovec from{&value, sizeof value};
        if (error == VendorError::none && count != 0 &&
            process_.self().write(process_.directory(), &from, 1, ranges, count) != 0)
          error = VendorError::local_memory_gone;
      }
      responded(*qp, *request, error);
    }
  }
  qp->send_lock.unlock();
  return Next::kOn;
}

// ---- frames -----------------------------------------------------------------------------------------------

Remote::Next Remote::go_on_with_bulk(RemotePeer& peer) {
  auto& bulk = peer.bulk_in;
  peer.takes_large = bulk.remote_requester != nullptr ? sizeof(RequestHead) : sizeof(AnswerHead);
  if (bulk.remote_requester != nullptr)
    return after(peer, *bulk.remote_requester, bulk.remote_requester->go_on(bulk.request));
  if (bulk.is_answer) {
    bool busy = false;
    Qp* const qp = lock_requester(peer, bulk.answer, &busy);
    if (busy) return Next::kStop;
    bulk.is_answer = qp != nullptr && scatter(*qp, peer, bulk.answer) && bulk.left != 0;
    if (qp != nullptr) qp->send_lock.unlock();
    return bulk.is_answer ? Next::kMore : Next::kOn;
  }
  peer.takes_large = 0;
  const uint64_t skipped = std::min<uint64_t>(bulk.left, peer.in.size());
  peer.in.consume(skipped);
  bulk.left -= skipped;
  return bulk.left == 0 ? Next::kOn : Next::kMore;
}

Remote::Next Remote::take_query(RemotePeer& peer, const Frame& frame) {
  peer.in.consume(frame.head_size);
  const NodeDirectory& directory = process_.directory();
  if (frame.head.start.kind == FrameKind::kQuery) {
    wire::WhereaboutsHead head{sizeof head, FrameKind::kWhereabouts,    {}, frame.head.query.qpn,
                               0,           directory.header().node_id, 0,  0};
    if (QpnEntry found; directory.find_qpn(head.qpn, &found)) {
      head.slot = found.slot;
      head.generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
    }
    std::lock_guard out(peer.out_mutex);
    if (std::byte* const at = peer.out.room() >= sizeof head ? peer.out.append(sizeof head) : nullptr;
        at != nullptr)
      std::memcpy(at, &head, sizeof head);
    return Next::kOn;
  }
  const wire::WhereaboutsHead& head = frame.head.whereabouts;
  // It speaks for its own node only, and when it is asked: each process that it names is somebody to be called.
  if (head.node != peer.id.node || peer.asked == 0) return Next::kOn;
  --peer.asked;
  if (head.generation == 0) {
    for (auto& [qpn, route] : routes_)
      if (route.path->qpn == head.qpn && route.path->to == peer.address)
        route.path->is_called.store(false, std::memory_order_relaxed);
    drop_waiting_datagrams(peer.address, head.qpn);
    return Next::kOn;
  }
  if (!is_wanted(peer.address, head.qpn)) return Next::kOn;
  const wire::ProcessId id{head.node, head.slot, head.generation};
  const int64_t now = now_ns();
  for (auto& [qpn, route] : routes_) {
    if (route.peer || route.path->qpn != head.qpn || route.path->to != peer.address) continue;
    route.peer = peer_of(id);
    route.asked_at = 0;
    find_peer(route, now);
  }
  const std::shared_ptr<RemotePeer> who = peer_of(id);
  know(peer.address, head.qpn, who);
  if (!send_waiting_datagrams(now) || who->connected.load(std::memory_order_relaxed)) return Next::kOn;
  request_connection(peer.address, peer.own_address, wire::Target::of_process(id), 0, who);
  return Next::kOn;
}

Remote::Next Remote::parse_one(RemotePeer& peer) {
  if (peer.broken.load(std::memory_order_relaxed)) return Next::kStop;
  if (peer.bulk_in.left != 0) return go_on_with_bulk(peer);
  Frame frame;
  switch (wire::decode(peer.in.data(), peer.in.size(), &frame)) {
    case wire::Decoded::kIncomplete:
      return Next::kMore;
    case wire::Decoded::kMalformed:
      VERBENA_WARN("process %u of %s sends what is no frame: the connection ends", peer.id.slot,
                   peer.address.text().c_str());
      peer.broken.store(true, std::memory_order_relaxed);
      return Next::kStop;
    case wire::Decoded::kFrame:
      break;
  }
  switch (frame.head.start.kind) {
    case FrameKind::kRequest:
      return take_request(peer, frame);
    case FrameKind::kDatagram:
      return take_datagram(peer, frame);
    case FrameKind::kQuery:
    case FrameKind::kWhereabouts:
      return take_query(peer, frame);
    default:
      return take_answer_frame(peer, frame);
  }
}

}  // namespace verbena
