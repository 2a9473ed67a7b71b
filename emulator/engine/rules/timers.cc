// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/timers.h"

namespace verbena {
namespace {

constexpr uint64_t kMicrosecond = 1000;
constexpr uint8_t kFiveBits = 31;
constexpr uint8_t kRnrRetryForever = 7;

// Microseconds by 5-bit code (InfiniBand Architecture Specification vol. 1, 9.7.5.2.8). The steps are about
// 1, 1.5, 2, 3, 4, 6 ... times 10 us, and code 0 is the longest. The kernel's rxe_comp.c has the same table
// except for code 25: 61410 us, although its own name for the code says 61.44 ms.
constexpr uint32_t kRnrTimerMicroseconds[] = {
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,    320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};
static_assert(sizeof(kRnrTimerMicroseconds) / sizeof(kRnrTimerMicroseconds[0]) == kFiveBits + 1);

}  // namespace

uint64_t rnr_timer_ns(uint8_t min_rnr_timer) noexcept {
  return kRnrTimerMicroseconds[min_rnr_timer & kFiveBits] * kMicrosecond;
}

uint64_t ack_timeout_ns(uint8_t timeout) noexcept {
  const unsigned code = timeout & kFiveBits;
  return code == 0 ? kNever : uint64_t{4096} << code;
}

uint64_t rnr_failure_ns(uint8_t rnr_retry, uint8_t min_rnr_timer) noexcept {
  return rnr_retry >= kRnrRetryForever ? kNever : rnr_retry * rnr_timer_ns(min_rnr_timer);
}

uint64_t transport_failure_ns(uint8_t timeout, uint8_t retry_cnt) noexcept {
  const uint64_t once = ack_timeout_ns(timeout);
  return once == kNever ? kNever : (uint64_t{retry_cnt} + 1) * once;
}

}  // namespace verbena
