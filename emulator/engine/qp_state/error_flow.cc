// SPDX-License-Identifier: BSD-2-Clause
#include "engine/qp_state/error_flow.h"

#include <errno.h>

#include <algorithm>

#include "engine/completion/own_cq.h"
#include "engine/completion/poll.h"
#include "engine/completion/send_completion.h"
#include "engine/events/async_events.h"
#include "engine/objects/transport.h"
#include "engine/qp_state/migration.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/receive/bounce_memory.h"
#include "engine/qp_state/state_change.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/receive/tag_matching.h"
#include "fabric/hazards.h"
#include "fabric/port_counters.h"
#include "keep_errno.h"
#include "observe/log.h"

namespace verbena {
namespace {

// `number`: of the WQE, or with kCqeFromShared the slot of the shared queue.
void append_receive_flush(Qp& qp, uint64_t number, uint8_t flags = 0) {
  Cq& cq = *qp.recv_cq;
  const Completion flushed{.qp_index = qp.index,
                           .qp_incarnation = qp.shared->incarnation,
                           .index = static_cast<uint32_t>(number),
                           .status = IBV_WC_WR_FLUSH_ERR,
                           .flags = static_cast<uint8_t>(kCqeReceive | flags),
                           .vendor_err = static_cast<uint8_t>(VendorError::flushed)};
  count_event(qp.process->directory(), *qp.shared, HwCounter::kReceiveFlushes);
  const Room room = append_completion(own_cq(cq), flushed, uint64_t{0}, true);
  if (room == Room::kIgnored && (flags & kCqeFromShared) != 0) {
    if (is_tag(static_cast<uint32_t>(number)))
      free_slot(*qp.srq, static_cast<uint32_t>(number));
    else
      qp.srq->ring.abandon(static_cast<uint32_t>(number));
  }
}

// No requester takes WQEs for this QP any more. Of an SRQ only the current WQE is flushed: the others belong
// to the other QPs as well (vol. 1, 10.2.9.4). A queue of the QP's own is flushed from end to end.
void flush_shared_queue(Qp& qp) {
  std::atomic<uint32_t>& current_wqe = qp.shared->srq_slot;
  uint32_t slot_and_one = current_wqe.load(std::memory_order_acquire);
  if (slot_and_one != 0 && current_wqe.compare_exchange_strong(slot_and_one, kFlushing | slot_and_one)) {
    append_receive_flush(qp, slot_and_one - 1, kCqeFromShared);
    current_wqe.store(0, std::memory_order_release);
  }
  if (is_of_program(*qp.srq)) return;
  for (uint32_t slot; take_own(*qp.srq, &slot);) append_receive_flush(qp, slot, kCqeFromShared);
}

// The number of the first receive WQE without a completion, polled or not.
uint64_t first_uncompleted_receive(Qp& qp) {
  uint64_t first = qp.rq_freed.load(std::memory_order_acquire);
  Cq& cq = *qp.recv_cq;
  std::lock_guard lock(cq.lock);
  first = std::max(first, qp.rq_freed.load(std::memory_order_acquire));
  cq.consumer.for_each([&](Cqe& entry, bool) {
    if (entry.qp_index == qp.index && entry.qp_incarnation == qp.shared->incarnation &&
        (entry.flags & kCqeReceive) != 0 && (entry.flags & kCqeXrc) == 0) {
      const uint32_t ahead = entry.index - static_cast<uint32_t>(first);
      if (ahead < 0x8000'0000u) first += ahead + uint64_t{1};
    }
    return false;
  });
  return first;
}

// The peer may have died between appending a completion and raising its event. The program that waits for it
// learns of the peer's end in another way, and tears down the connection: then at the latest it gets the
// event. The event is superfluous where the program armed the CQ without polling it afterwards.
void raise_event_of_dead_peer(Qp& qp) {
  const PeerPath& path = qp.requester.path;
  if (!path.adapter || path.adapter->alive(qp.process->directory()) || qp.recv_cq == nullptr) return;
  Cq& cq = *qp.recv_cq;
  if (cq.channel != nullptr && !cq.consumer.seems_empty())
    raise_kept_back_event(*cq.shared, qp.process->self());
}

// The peer has migrated the connection (migration.h).
void note_migration(Qp& qp, uint32_t flags) {
  {
    std::lock_guard send(qp.send_lock);
    if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;
    if ((flags & kPendingMigrated) != 0) follow_migration(qp);
  }
  raise_qp_event(qp, (flags & kPendingMigrated) != 0 ? IBV_EVENT_PATH_MIG : IBV_EVENT_PATH_MIG_ERR);
}

}  // namespace

void close_responder(Qp& qp, ibv_qp_state state) {
  const ResponderState responder =
      ResponderState::unpack(qp.shared->responder_state.load(std::memory_order_relaxed));
  // The PSN that the peer had reached can still be queried (ibv_query_qp(3)).
  if (qp.shared->requester_generation.load(std::memory_order_relaxed) == responder.generation)
    qp.attr.rq_psn = qp.shared->expected_psn.load(std::memory_order_relaxed);
  qp.wakeup_asked = false;
  qp.transport->abandon(qp);
  change_state(qp, state, Generation::kNext);
}

void enter_error(Qp& qp) {
  if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  // Before the state shows ERR: a receive WQE posted from then on is flushed with the others.
  qp.flush_receives.store(true, std::memory_order_release);
  close_responder(qp, IBV_QPS_ERR);
  qp.waiting = Waiting::kNothing;
  qp.drain_event_due = false;
  for (; qp.sq_next != qp.sq_posted; ++qp.sq_next) flush_send(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)]);
  if (!flush_receive_queue(qp, kHazardPatience)) qp.process->self().report(*qp.shared);
  raise_event_of_dead_peer(qp);
}

void enter_send_queue_error(Qp& qp) {
  if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  change_state(qp, IBV_QPS_SQE, Generation::kSame);
  qp.waiting = Waiting::kNothing;
  qp.drain_event_due = false;
  for (; qp.sq_next != qp.sq_posted; ++qp.sq_next) flush_send(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)]);
}

bool flush_receive_queue(Qp& qp, int64_t patience_ns) {
  if (!qp.flush_receives.load(std::memory_order_acquire)) return true;
  // Only the requester can use the queue.
  const uint32_t requester = std::atomic_ref(qp.shared->dest_slot).load(std::memory_order_relaxed);
  if (!hazards_released(qp.process->directory(), qp.process->membership().slot(), requester, patience_ns))
    return false;
  {
    std::lock_guard lock(qp.recv_lock);
    if (!qp.flush_receives.load(std::memory_order_acquire)) return true;
    if (qp.srq != nullptr)
      flush_shared_queue(qp);
    else if (qp.recv_cq != nullptr)
      for (uint64_t number = first_uncompleted_receive(qp); number < qp.rq_posted; ++number)
        append_receive_flush(qp, number);
    qp.flush_receives.store(false, std::memory_order_release);
  }
  // The program may now destroy the QP: it will complete no more WQEs of the SRQ (vol. 1, 11.6.3.2).
  if (qp.srq != nullptr && is_of_program(*qp.srq)) raise_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
  return true;
}

void forget_receives(Qp& qp) {
  if (qp.srq == nullptr) return;
  forget_rendezvous(*qp.srq, qp);
  if (const uint32_t current_wqe = qp.shared->srq_slot.exchange(0, std::memory_order_acq_rel);
      current_wqe != 0)
    free_slot(*qp.srq, current_wqe - 1);
  if (!is_of_program(*qp.srq)) forget_posted(*qp.srq);
}

void flush_one_receive(Qp& qp, uint64_t number) {
  // Older WQEs have to be flushed first. This one is flushed with them.
  if (!qp.flush_receives.load(std::memory_order_acquire)) append_receive_flush(qp, number);
}

void purge_completions(Qp& qp) {
  Cq* queues[2] = {qp.send_cq, qp.recv_cq};
  for (int i = 0; i < (queues[0] == queues[1] ? 1 : 2); ++i) {
    if (queues[i] == nullptr) continue;
    std::lock_guard lock(queues[i]->lock);
    queues[i]->consumer.for_each([&](Cqe& entry, bool) {
      if ((entry.flags & kCqeXrc) != 0 || entry.qp_index != qp.index ||
          entry.qp_incarnation != qp.shared->incarnation)
        return false;
      if ((entry.flags & kCqeFromShared) != 0 && qp.srq != nullptr) {
        if (is_tag(entry.index))
          forget_tag_completion(*qp.srq, entry);
        else
          free_slot(*qp.srq, entry.index);
      }
      return true;
    });
  }
}

void act_on_pending_flags_slowly(Qp& qp) {
  const KeepErrno guard;
  constexpr uint32_t kMigration = kPendingMigrated | kPendingMigrationError;
  constexpr uint32_t kHarmless = kPendingCommEst | kPendingScatter | kPendingBounceRing | kMigration;
  const uint32_t harmless =
      qp.shared->pending_flags.fetch_and(~kHarmless, std::memory_order_acq_rel) & kHarmless;
  if ((harmless & kPendingCommEst) != 0) raise_qp_event(qp, IBV_EVENT_COMM_EST);
  if ((harmless & kPendingScatter) != 0 && qp.recv_cq != nullptr) scatter_eager(*qp.recv_cq);
  if ((harmless & kPendingBounceRing) != 0) make_bounce_ring(qp);
  if ((harmless & kMigration) != 0) note_migration(qp, harmless);
  uint32_t errors;
  {
    // Taken and acted on under one lock. In between the queue pair could be reset, and its next generation
    // would fail for an error of this one.
    std::lock_guard send(qp.send_lock);
    errors = qp.shared->pending_flags.fetch_and(kHarmless, std::memory_order_acq_rel) & ~kHarmless;
    if (errors == 0 || qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;
    enter_error(qp);
  }
  if ((errors & kPendingAccessError) != 0) raise_qp_event(qp, IBV_EVENT_QP_ACCESS_ERR);
  if ((errors & kPendingRequestError) != 0) raise_qp_event(qp, IBV_EVENT_QP_REQ_ERR);
  if ((errors & kPendingOverrun) != 0) raise_qp_event(qp, IBV_EVENT_QP_FATAL);
}

}  // namespace verbena
