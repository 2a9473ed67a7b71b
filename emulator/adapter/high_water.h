// SPDX-License-Identifier: BSD-2-Clause
//
// The number of table entries that have ever been in use: readers look at those only. It never decreases.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

// Records that entry `index` is in use. Any thread of any process, without a lock.
inline void raise_high_water(std::atomic<uint32_t>& high_water, uint32_t index) {
  for (uint32_t seen = high_water.load(); seen <= index && !high_water.compare_exchange_weak(seen, index + 1);) {
  }
}

}  // namespace verbena
