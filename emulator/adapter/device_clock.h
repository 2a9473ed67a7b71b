// SPDX-License-Identifier: BSD-2-Clause
//
// The clock of every emulated device: the machine's CLOCK_MONOTONIC, in nanoseconds, so that time stamps
// taken in one process can be compared with those taken in another.
#pragma once

#include <time.h>

#include <cstdint>

namespace verbena {

inline uint64_t device_clock_ticks() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace verbena
