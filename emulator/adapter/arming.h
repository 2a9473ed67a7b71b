// SPDX-License-Identifier: BSD-2-Clause
//
// A CQ's word that says whether it is armed: the owner arms it, and of the producers that find it armed one raises the event.
// Any of them may be killed or stopped between any two steps.
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/layout.h"

namespace verbena {

// Owner. Armed for everything stays so when it is to be for solicited ones only (ibv_req_notify_cq(3); vol. 1, 11.4.2.2).
inline void arm(std::atomic<uint32_t>& word, Armed wanted) {
  uint32_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    const Arming arming = Arming::unpack(seen);
    if (arming.state != Armed::kRaising && static_cast<uint32_t>(arming.state) >= static_cast<uint32_t>(wanted)) return;
    if (word.compare_exchange_weak(seen, Arming{wanted, arming.raising}.pack(), std::memory_order_acq_rel)) return;
  }
}

// Producer. True: it is to write the event, and then to end the raising that *raising names. That of another one which hangs
// is taken over: writing an event takes a microsecond or two, and who is not there after kLooks is dead or stopped.
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

// Unless the owner has armed it again.
inline void end_raising(std::atomic<uint32_t>& word, uint32_t raising, Armed then = Armed::kNo) {
  word.compare_exchange_strong(raising, Arming{then, Arming::unpack(raising).raising}.pack(), std::memory_order_acq_rel);
}

}  // namespace verbena
