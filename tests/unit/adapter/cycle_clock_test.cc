// SPDX-License-Identifier: BSD-2-Clause
//
// The clock of the processor's counter: it agrees with clock_gettime(2), and never goes back.
#include "adapter/cycle_clock.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

// ns. What the counter may be off at most (cycle_clock.h).
constexpr int64_t kOff = 100'000;

TEST(CycleClock, AgreesWithTheKernels) {
  CycleClock clock;
  int64_t last = 0;
  for (const int64_t end = now_ns() + 100'000'000; last < end;) {
    const int64_t before = now_ns();
    const int64_t now = clock.now();
    const int64_t after = now_ns();
    ASSERT_GE(now, last);
    ASSERT_GE(now, before - kOff);
    ASSERT_LE(now, after + kOff);
    last = now;
  }
}

}  // namespace
}  // namespace verbena
