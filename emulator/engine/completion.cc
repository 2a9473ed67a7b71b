// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion.h"

#include "fabric/peer_adapter.h"

namespace verbena {
namespace {

// Writing an event takes a microsecond or two. So many looks later its writer is dead or stopped.
constexpr int kLooks = 2000;

// Is it still the same raising after a while?
bool raising_hangs(const SharedCq& cq) {
  for (int looks = 0; looks < kLooks; ++looks)
    if (cq.armed.load(std::memory_order_acquire) != Armed::kRaising) return false;
  return true;
}

}  // namespace

void raise_completion_event_slowly(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error) {
  // The entry must be visible before we look at `armed`: whoever arms and then polls must either see the entry
  // or be seen by us (Dekker; the other half is in req_notify_cq).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Armed armed = cq.armed.load(std::memory_order_relaxed);
  for (;;) {
    if (armed == Armed::kNo || (armed == Armed::kSolicited && !solicited_or_error)) return;
    if (armed == Armed::kRaising) {
      if (raising_hangs(cq)) break;
      armed = cq.armed.load(std::memory_order_relaxed);
    } else if (cq.armed.compare_exchange_weak(armed, Armed::kRaising, std::memory_order_acq_rel)) {
      break;
    }
  }
  if (adapter.notify(cq.channel, cq.user_handle) != 0) {
    // The pipe is full, or this process may not open it: the owner writes the event itself as soon as it can.
    cq.lost.fetch_add(1, std::memory_order_acq_rel);
    SegmentHeader& header = adapter.view().header();
    header.lost_events.store(1, std::memory_order_release);
    header.attention.store(1, std::memory_order_release);
    adapter.kick();
  }
  cq.raised.fetch_add(1, std::memory_order_relaxed);
  // Unless the owner has armed it anew.
  Armed raising = Armed::kRaising;
  cq.armed.compare_exchange_strong(raising, Armed::kNo, std::memory_order_acq_rel);
}

}  // namespace verbena
