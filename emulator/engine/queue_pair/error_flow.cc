// SPDX-License-Identifier: BSD-2-Clause
#include "engine/queue_pair/error_flow.h"

#include <errno.h>

#include <algorithm>

#include "engine/completion/completion.h"
#include "engine/requester/requester.h"
#include "engine/xrc/xrc.h"
#include "engine/xrc/xrc_shared_qp.h"
#include "fabric/hazards.h"
#include "observe/log.h"
#include "observe/mutant.h"

namespace verbena {
namespace {

// `number`: of the WQE, or with kCqeFromShared the slot of the shared queue.
void append_receive_flush(Qp& qp, uint64_t number, uint8_t flags = 0) {
  Cq& cq = *qp.recv_cq;
  const Claim claim = claim_completion(cq.ring, qp.process->membership().worker());
  if (claim.entry == nullptr && cq.ring.ignores_overrun()) {
    if ((flags & kCqeFromShared) != 0) qp.srq->ring.abandon(static_cast<uint32_t>(number));
    return;
  }
  if (claim.entry == nullptr) {
    cq.shared->overrun.store(1, std::memory_order_release);
    qp.process->ring_doorbell();
    return;
  }
  Cqe& entry = *claim.entry;
  entry.qp_index = qp.index;
  entry.qp_incarnation = qp.shared->incarnation;
  entry.index = static_cast<uint32_t>(number);
  entry.byte_len = 0;
  entry.status = mutated("flush-status") ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;
  entry.opcode = 0;
  entry.vendor_err = static_cast<uint8_t>(VendorError::flushed);
  entry.flags = kCqeReceive | flags;
  publish_completion(cq.ring, claim, CqeKind::kPublished);
  raise_completion_event(*cq.shared, qp.process->self(), !mutated("cq-solicited-no-errors"));
}

// Nobody takes for this QP any more. Of an SRQ only what it had in hand is flushed, the rest is the other
// QPs' (vol. 1, 10.2.9.4); a queue of the QP's own is flushed from end to end.
void flush_shared_queue(Qp& qp) {
  std::atomic<uint32_t>& current_wqe = qp.shared->srq_slot;
  uint32_t slot_and_one = current_wqe.load(std::memory_order_acquire);
  if (slot_and_one != 0 && current_wqe.compare_exchange_strong(slot_and_one, kFlushing | slot_and_one)) {
    append_receive_flush(qp, slot_and_one - 1, kCqeFromShared);
    current_wqe.store(0, std::memory_order_release);
  }
  if (is_of_program(*qp.srq) && !mutated("flush-shared")) return;
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

// struct ib_uverbs_async_event_desc (kernel, include/uapi/rdma/ib_user_verbs.h).
struct EventRecord {
  uint64_t element;
  uint32_t event_type;
  uint32_t reserved;
};
static_assert(sizeof(EventRecord) == 16);

// Events below this number concern an object by its handle; the others a port.
bool concerns_object(uint32_t type) {
  return type <= IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED ||
         type == IBV_EVENT_QP_LAST_WQE_REACHED || type == IBV_EVENT_WQ_FATAL;
}

// False: nobody has read the descriptor for so long that it takes no more; the event is lost.
bool write_event(Context& context, uint64_t element, ibv_event_type type) {
  const EventRecord record{element, static_cast<uint32_t>(type), 0};
  if (context.events.write(&record, sizeof record) == 0) return true;
  VERBENA_WARN("asynchronous event %d is lost: nobody reads the descriptor", type);
  return false;
}

}  // namespace

void close_responder(Qp& qp, ibv_qp_state state) {
  const ResponderState responder =
      ResponderState::unpack(qp.shared->responder_state.load(std::memory_order_relaxed));
  // What the peer had got to stays to be asked for (ibv_query_qp(3)).
  if (qp.shared->requester_generation.load(std::memory_order_relaxed) == responder.generation)
    qp.attr.rq_psn = qp.shared->expected_psn.load(std::memory_order_relaxed);
  qp.requester_flag_set = false;
  if (qp.xrc_targets) abandon_current_wqe(qp);
  qp.shared->responder_state.store(
      ResponderState{responder.generation + 1, static_cast<uint8_t>(state)}.pack(),
      std::memory_order_seq_cst);
  qp.state.store(state, std::memory_order_release);
}

void enter_error(Qp& qp) {
  if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  // Before the state shows ERR: a receive posted from then on leaves its flushing to whoever flushes the
  // rest.
  qp.flush_receives.store(true, std::memory_order_release);
  close_responder(qp, IBV_QPS_ERR);
  qp.waiting = Waiting::kNothing;
  qp.drain_event_due = false;
  if (mutated("flush-sends-lost")) qp.sq_next = qp.sq_posted;
  if (mutated("flush-out-of-order") && qp.sq_posted - qp.sq_next > 1)
    std::swap(qp.sq[qp.sq_next & (qp.sq.size() - 1)], qp.sq[(qp.sq_posted - 1) & (qp.sq.size() - 1)]);
  for (; qp.sq_next != qp.sq_posted; ++qp.sq_next)
    complete_send(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)], VendorError::flushed);
  if (!flush_receive_queue(qp, kHazardPatience)) qp.process->ring_doorbell();
}

void enter_send_queue_error(Qp& qp) {
  if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  const ResponderState responder =
      ResponderState::unpack(qp.shared->responder_state.load(std::memory_order_relaxed));
  qp.shared->responder_state.store(ResponderState{responder.generation, IBV_QPS_SQE}.pack(),
                                   std::memory_order_seq_cst);
  qp.state.store(IBV_QPS_SQE, std::memory_order_release);
  qp.waiting = Waiting::kNothing;
  qp.drain_event_due = false;
  for (; qp.sq_next != qp.sq_posted; ++qp.sq_next)
    complete_send(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)], VendorError::flushed);
}

bool flush_receive_queue(Qp& qp, int64_t patience_ns) {
  if (!qp.flush_receives.load(std::memory_order_acquire)) return true;
  // Nobody else than the requester can be at work on the queue.
  const uint32_t requester = std::atomic_ref(qp.shared->dest_slot).load(std::memory_order_relaxed);
  if (!hazards_released(qp.process->directory(), qp.process->membership().slot(), requester, patience_ns))
    return false;
  {
    std::lock_guard lock(qp.recv_lock);
    if (!qp.flush_receives.load(std::memory_order_acquire)) return true;
    if (qp.srq != nullptr)
      flush_shared_queue(qp);
    else if (qp.recv_cq != nullptr)
      for (uint64_t number = first_uncompleted_receive(qp);
           number < qp.rq_posted && !mutated("flush-receives-lost"); ++number)
        append_receive_flush(qp, number);
    qp.flush_receives.store(false, std::memory_order_release);
  }
  // The program may now take the QP down: none of the SRQ's requests will be completed by it (vol.
  // 1, 11.6.3.2).
  if (qp.srq != nullptr && is_of_program(*qp.srq) && !mutated("event-last-wqe-missing"))
    raise_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
  return true;
}

void forget_receives(Qp& qp) {
  if (qp.srq == nullptr) return;
  if (const uint32_t current_wqe = qp.shared->srq_slot.exchange(0, std::memory_order_acq_rel);
      current_wqe != 0)
    free_slot(*qp.srq, current_wqe - 1);
  if (!is_of_program(*qp.srq)) forget_posted(*qp.srq);
}

void flush_one_receive(Qp& qp, uint64_t number) {
  // Those posted before have to be flushed first; then this one is among them.
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
      if ((entry.flags & kCqeFromShared) != 0 && qp.srq != nullptr) free_slot(*qp.srq, entry.index);
      return true;
    });
  }
}

void raise_qp_event(Qp& qp, ibv_event_type type) {
  if (mutated("event-access-error-other") && type == IBV_EVENT_QP_ACCESS_ERR) type = IBV_EVENT_QP_FATAL;
  if (qp.xrcd != nullptr) {
    raise_event_at_handles(qp, type);
    return;
  }
  std::lock_guard lock(qp.context->events_mutex);
  if (mutated("event-twice") && write_event(*qp.context, qp.user_handle, type)) ++qp.async_events;
  if (write_event(*qp.context, qp.user_handle, type)) qp.async_events.fetch_add(1, std::memory_order_relaxed);
}

void raise_event_at_handles(Qp& qp, ibv_event_type type) {
  {
    std::lock_guard handles(qp.handles_mutex);
    for (QpHandle& handle : qp.handles) {
      std::lock_guard lock(handle.context->events_mutex);
      if (write_event(*handle.context, handle.user_handle, type)) ++handle.async_events;
    }
  }
  if (!qp.proxy) tell_holders(qp, type);
}

void raise_cq_event(Cq& cq, ibv_event_type type) {
  std::lock_guard lock(cq.context->events_mutex);
  if (write_event(*cq.context, cq.user_handle, type)) cq.async_events.fetch_add(1, std::memory_order_relaxed);
}

void raise_port_event(Context& context, ibv_event_type type) {
  std::lock_guard lock(context.events_mutex);
  write_event(context, 1, type);
}

void raise_srq_event(Srq& srq, ibv_event_type type) {
  std::lock_guard lock(srq.context->events_mutex);
  if (write_event(*srq.context, srq.user_handle, type))
    srq.async_events.fetch_add(1, std::memory_order_relaxed);
}

void act_on_pending_flags_slowly(Qp& qp) {
  constexpr uint32_t kHarmless = kPendingCommEst | kPendingScatter;
  const uint32_t harmless =
      qp.shared->pending_flags.fetch_and(~kHarmless, std::memory_order_acq_rel) & kHarmless;
  if ((harmless & kPendingCommEst) != 0 && !mutated("event-comm-est-missing"))
    raise_qp_event(qp, IBV_EVENT_COMM_EST);
  if ((harmless & kPendingScatter) != 0 && qp.recv_cq != nullptr) scatter_eager(*qp.recv_cq);
  uint32_t errors;
  {
    // Taken and acted on in one: between the two the queue pair could be reset, and its next life would end
    // by what was wrong in this one.
    std::lock_guard send(qp.send_lock);
    errors = qp.shared->pending_flags.fetch_and(kHarmless, std::memory_order_acq_rel) & ~kHarmless;
    if (errors == 0 || qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;
    enter_error(qp);
  }
  if ((errors & kPendingAccessError) != 0 && !mutated("event-access-error-missing"))
    raise_qp_event(qp, IBV_EVENT_QP_ACCESS_ERR);
  if ((errors & kPendingRequestError) != 0) raise_qp_event(qp, IBV_EVENT_QP_REQ_ERR);
  if ((errors & kPendingOverrun) != 0) raise_qp_event(qp, IBV_EVENT_QP_FATAL);
}

uint32_t take_back_events(Context& context, uint64_t user_handle, uint32_t raised) {
  if (raised == 0) return 0;
  std::lock_guard lock(context.events_mutex);
  std::vector<EventRecord> others;
  EventRecord record;
  uint32_t unread = 0;
  while (context.events.read(&record, sizeof record)) {
    if (concerns_object(record.event_type) && record.element == user_handle)
      ++unread;
    else
      others.push_back(record);
  }
  for (const EventRecord& other : others) context.events.write(&other, sizeof other);
  return raised - std::min(raised, unread);
}

}  // namespace verbena
