// SPDX-License-Identifier: BSD-2-Clause
//
// The clock of all deadlines.
#pragma once

#include <time.h>

#include <cstdint>

namespace verbena {

inline constexpr int64_t kEndOfTime = INT64_MAX;

// CLOCK_MONOTONIC in nanoseconds.
inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// CLOCK_REALTIME in nanoseconds: when something happened, for people. Not for deadlines.
inline uint64_t wall_clock_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// `duration_ns` from now; kEndOfTime if that would overflow.
inline int64_t deadline_after(uint64_t duration_ns) {
  const int64_t now = now_ns();
  if (duration_ns > static_cast<uint64_t>(kEndOfTime - now)) return kEndOfTime;
  return now + static_cast<int64_t>(duration_ns);
}

}  // namespace verbena
