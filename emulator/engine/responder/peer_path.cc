// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/peer_path.h"

#include "engine/responder/violations.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/psn.h"
#include "fabric/port_counters.h"

namespace verbena {
namespace {

bool takes_requests(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

uint8_t peer_type(ibv_qp_type type) { return type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : type; }

// The peer takes its receive WQEs from an SRQ. If this process looks it up again within one generation, an
// unfinished message keeps its WQE.
bool find_shared_receives(PeerPath& path, uint32_t index) {
  SharedSrq* srq = path.adapter->view().srq(index);
  if (srq == nullptr || srq->in_use.load(std::memory_order_acquire) == 0) return false;
  path.shared_receives = SharedReceiveRing::of(path.adapter->view(), *srq);
  path.receive_pd = srq->pd;
  path.tags = TagList::of(path.adapter->view(), *srq);
  path.tag_message = {};
  path.current_wqe = path.qp->srq_slot.load(std::memory_order_relaxed);
  if (path.shared_receives.order_entries == nullptr) return false;
  if (path.current_wqe != 0 && is_tag(path.current_wqe - 1))
    return tag_index(path.current_wqe - 1) < path.tags.count;
  return path.current_wqe <= path.shared_receives.slots();
}

// The receive queue and CQ of the peer. For an XRC request they are those of its SRQ (xrc_target.h).
VendorError find_receives(RequesterContext& requester) {
  PeerPath& path = requester.path;
  const SharedQp& there = *path.qp;
  const SegmentView& view = path.adapter->view();
  SharedCq* cq = view.cq(there.recv_cq);
  if (cq == nullptr || cq->alive.load(std::memory_order_acquire) == 0) return VendorError::peer_not_ready;
  path.completion_queue = cq;
  path.completions = CompletionRing::of(view, *cq, &requester.peer_head);
  if (path.completions.entries == nullptr) return VendorError::peer_not_ready;
  path.receives = ReceiveRing::of(view, there);
  path.known_ready = {};
  path.memory = path.adapter.get();
  path.receive_pd = path.remote_pd = there.pd;
  path.shared_receives = {};
  path.tags = {};
  path.current_wqe = 0;
  if (there.srq != 0 && !find_shared_receives(path, there.srq - 1)) return VendorError::peer_not_ready;
  path.taken = there.rq_taken.load(std::memory_order_relaxed);
  path.has_eager = false;
  path.bounce_ring = {};
  path.asked_for_bounce_ring = false;
  return VendorError::none;
}

// Does the path lead to the port that the peer is on, and are both in one partition? What comes with a P_Key
// of another partition is dropped and counted (vol. 1, 10.9.4; rxe_recv.c, check_keys()). A requester of
// another process by frames has no path word here: its P_Key does not come with its requests.
bool is_on_path(const RequesterContext& requester, const SharedQp& there) {
  const SharedQp* const own = requester.process->view().qp(requester.index);
  if (requester.index == kRemoteIndex || own == nullptr) return true;
  const QpPath from = QpPath::unpack(own->path.load(std::memory_order_acquire));
  const QpPath to = QpPath::unpack(there.path.load(std::memory_order_acquire));
  if (requester.path.port != to.port) return false;
  if (pkeys_match(from.pkey, to.pkey)) return true;
  count_violation(requester.process->directory().header().pkey_violations[port_place(there.device, to.port)]);
  return false;
}

// Once for each PSN and generation of the responder, however often the request is tried.
void count_wrong_psn(RequesterContext& requester, const SharedQp& there, uint32_t expected,
                     uint64_t generation) {
  const uint64_t counted = generation << 24 | requester.psn;
  if (requester.path.counted_psn == counted) return;
  requester.path.counted_psn = counted;
  count_event(requester.process->directory(), there,
              psn_distance(expected, requester.psn) > 0 ? HwCounter::kOutOfSequence : HwCounter::kDuplicates);
}

// Checks the peer. The caller holds a hazard guard.
VendorError check_path_slowly(RequesterContext& requester, uint64_t state_word) {
  PeerPath& path = requester.path;
  const NodeMembership& membership = requester.process->membership();
  const ResponderState responder = ResponderState::unpack(state_word);
  SharedQp& there = *path.qp;
  // No queue pair has generation 0, but the peer's memory may be damaged. A path begins with generation 0, so
  // it must not match.
  if (responder.generation == 0) return VendorError::peer_not_ready;
  if (there.incarnation != path.incarnation || !takes_requests(responder.state))
    return VendorError::peer_not_ready;
  if (!is_on_path(requester, there)) return VendorError::peer_mismatch;
  if (responder.generation != path.generation) {
    // The rest may fail halfway. Until all of it is found, the path has no generation.
    path.generation = 0;
    if (there.type != peer_type(requester.type) || there.dest_qpn != requester.qpn ||
        there.dest_slot != membership.slot() || there.dest_slot_generation != membership.generation() ||
        there.dest_index != requester.index || there.dest_incarnation != requester.incarnation)
      return VendorError::peer_mismatch;
    const bool fed = there.requester_generation.load(std::memory_order_relaxed) == responder.generation;
    const uint32_t expected = fed ? there.expected_psn.load(std::memory_order_relaxed) : there.rq_psn;
    // UC: messages may have been lost, so a new message may have any PSN (rxe_resp.c, check_psn()).
    if (is_acknowledged(requester.type) && expected != requester.psn) {
      count_wrong_psn(requester, there, expected, responder.generation);
      return VendorError::peer_mismatch;
    }
    if (!requester.xrc_targets)
      if (const VendorError error = find_receives(requester); error != VendorError::none) return error;
    if (there.responder_state.load(std::memory_order_acquire) >> 8 != responder.generation)
      return VendorError::peer_not_ready;
    there.requester_generation.store(responder.generation, std::memory_order_relaxed);
    path.generation = responder.generation;
    path.established = false;
  }
  if (responder.state == IBV_QPS_RTR && !path.established) {
    path.established = true;
    there.pending_flags.fetch_or(kPendingCommEst, std::memory_order_acq_rel);
    path.adapter->report(there);
  }
  return VendorError::none;
}

}  // namespace

VendorError check_path(RequesterContext& requester) {
  PeerPath& path = requester.path;
  if (!ports_up(requester)) return VendorError::port_down;
  if (!path.adapter->alive(requester.process->directory())) return VendorError::peer_gone;
  const uint64_t responder = path.qp->responder_state.load(std::memory_order_acquire);
  if (responder == path.responder_state && responder != 0) return VendorError::none;
  const VendorError error = check_path_slowly(requester, responder);
  path.responder_state = error == VendorError::none ? responder : 0;
  return error;
}

}  // namespace verbena
