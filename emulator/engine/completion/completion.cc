// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/completion.h"

#include "adapter/arming.h"
#include "fabric/peer_adapter.h"

namespace verbena {
namespace {

// Asks the owner's service thread to raise the event at the end of the period.
void ask_for_timer(SharedCq& cq, PeerAdapter& adapter) {
  if (cq.timer_asked.load(std::memory_order_relaxed) != 0 ||
      cq.timer_asked.exchange(1, std::memory_order_acq_rel) != 0)
    return;
  adapter.report(cq);
}

// `reached`: moderation does not hold the event back.
void raise_if_armed(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error, bool reached) {
  const Armed armed = Arming::unpack(cq.armed.load(std::memory_order_relaxed)).state;
  if (armed == Armed::kNo || (armed == Armed::kSolicited && !solicited_or_error)) return;
  if (!reached) {
    if (Moderation::unpack(cq.moderation.load(std::memory_order_relaxed)).period != 0) ask_for_timer(cq, adapter);
    return;
  }
  uint32_t raising;
  if (!begin_raising(cq.armed, solicited_or_error, &raising)) return;
  cq.unreported.store(0, std::memory_order_relaxed);
  if (adapter.notify(cq.channel, cq.user_handle) != 0) {
    // The pipe is full, or this process may not open it: the owner writes the event later (lost_events.h).
    cq.lost.fetch_add(1, std::memory_order_acq_rel);
    adapter.view().header().lost_events.store(1, std::memory_order_release);
    adapter.report(cq);
  }
  cq.raised.fetch_add(1, std::memory_order_relaxed);
  end_raising(cq.armed, raising, Armed::kNo);
}

}  // namespace

void raise_completion_event_slowly(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error) {
  // The entry must be visible before `armed` is read. A thread that arms and then polls either sees the
  // entry, or its arming is seen here (Dekker; the other half is in req_notify_cq).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t moderation = cq.moderation.load(std::memory_order_relaxed);
  const bool reached = moderation == 0 || Moderation::unpack(moderation)
                                              .reached(cq.unreported.fetch_add(1, std::memory_order_relaxed) + 1);
  raise_if_armed(cq, adapter, solicited_or_error, reached);
}

void raise_kept_back_event(SharedCq& cq, PeerAdapter& adapter) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  raise_if_armed(cq, adapter, true, true);
}

}  // namespace verbena
