// SPDX-License-Identifier: BSD-2-Clause
//
// The arming word of a CQ (SharedCq::armed). The owner arms the CQ. Of the producers that find it armed, one
// raises the event. Any of these processes may be killed or stopped between any two steps.
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/layout.h"

namespace verbena {

// Owner. A CQ that is armed for all completions stays so when solicited-only is requested
// (ibv_req_notify_cq(3); vol. 1, 11.4.2.2).
inline void arm(std::atomic<uint32_t>& word, Armed wanted) {
  uint32_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    const Arming arming = Arming::unpack(seen);
    if (arming.state != Armed::kRaising && static_cast<uint32_t>(arming.state) >= static_cast<uint32_t>(wanted)) return;
    if (word.compare_exchange_weak(seen, Arming{wanted, arming.raising}.pack(), std::memory_order_acq_rel)) return;
  }
}

inline bool is_armed(const std::atomic<uint32_t>& word) {
  return Arming::unpack(word.load(std::memory_order_acquire)).state != Armed::kNo;
}

// Producer. True: the caller must write the event, and then end the raising that *raising names. A raising of
// another producer that hangs is taken over. Writing an event takes a microsecond or two, so a producer that
// has not finished after kLooks is dead or stopped.
inline bool begin_raising(std::atomic<uint32_t>& word, bool solicited_or_error, uint32_t* raising) {
  constexpr int kLooks = 2000;
  uint32_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    const Arming arming = Arming::unpack(seen);
    if (arming.state == Armed::kNo || (arming.state == Armed::kSolicited && !solicited_or_error)) return false;
    if (arming.state == Armed::kRaising) {
      uint32_t now = seen;
      for (int looks = 0; looks < kLooks && now == seen; ++looks) now = word.load(std::memory_order_acquire);
      if (now == seen) return *raising = seen, true;
      seen = now;
      continue;
    }
    const uint32_t mine = Arming{Armed::kRaising, arming.raising + 1}.pack();
    if (word.compare_exchange_weak(seen, mine, std::memory_order_acq_rel)) return *raising = mine, true;
  }
}

// Ends the raising, unless the owner has armed the CQ again.
inline void end_raising(std::atomic<uint32_t>& word, uint32_t raising, Armed then = Armed::kNo) {
  word.compare_exchange_strong(raising, Arming{then, Arming::unpack(raising).raising}.pack(), std::memory_order_acq_rel);
}

}  // namespace verbena
