// SPDX-License-Identifier: BSD-2-Clause
//
// Counts in shared memory of what a process has. They are cleared when the process leaves the node, while
// another of its threads may still give something back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace verbena {

// Takes `amount` away, and not more than there is: below zero it would wrap to 4,294,967,295.
inline void lower_count(std::atomic<uint32_t>& count, uint32_t amount) {
  for (uint32_t seen = count.load(std::memory_order_relaxed); !count.compare_exchange_weak(
           seen, seen - std::min(seen, amount), std::memory_order_release, std::memory_order_relaxed);) {
  }
}

}  // namespace verbena
