// SPDX-License-Identifier: BSD-2-Clause
//
// The counters of a port that ibv_query_port(3) shows: qkey_viol_cntr and bad_pkey_cntr.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

// 16 bits: it stays at its maximum (vol. 1, 14.2.5.6).
inline void count_violation(std::atomic<uint32_t>& count) {
  uint32_t seen = count.load(std::memory_order_relaxed);
  while (seen < UINT16_MAX && !count.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
  }
}

}  // namespace verbena
