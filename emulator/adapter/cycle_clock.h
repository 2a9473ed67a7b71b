// SPDX-License-Identifier: BSD-2-Clause
//
// CLOCK_MONOTONIC for those who ask some ten million times in a second: the processor's counter, which is set
// by clock_gettime(2) every 100 us. It is read without waiting for what the processor still has to do. A time
// is off by some ten ns at most, as long as the counters of the processors are the same; else by 100 us.
// Where the counter does not run evenly (CPUID 0x80000007: no invariant TSC) it is clock_gettime(2) itself.
//
// Any thread, but one at a time.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include <algorithm>
#include <cstdint>

#include "adapter/clock.h"

namespace verbena {

class CycleClock {
 public:
  // ns of CLOCK_MONOTONIC; never less than before.
  int64_t now() {
    const uint64_t passed = ticks() - base_ticks_;
    if (passed >= span_) [[unlikely]]
      return last_ = std::max(last_, set());
    return last_ = std::max(last_, base_ns_ + static_cast<int64_t>(passed * rate_ >> kShift));
  }

 private:
  static constexpr int kShift = 32;
  static constexpr uint64_t kSpan = 100'000;         // ns. So long the counter is trusted
  static constexpr int64_t kMeasuring = 10'000'000;  // ns. So long its rate is measured at least
  static constexpr uint64_t kLongestCall = 1000;     // ns. Of clock_gettime(2), or it was interrupted

  static uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
  }

  static bool is_even() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
  }

  struct Reading {
    int64_t ns;
    uint64_t ticks, took;
  };
  static Reading read() {
    const uint64_t before = ticks();
    const int64_t ns = now_ns();
    const uint64_t after = ticks();
    return {ns, after, after - before};
  }
  // One of them was not interrupted.
  static Reading read_well() {
    Reading best = read();
    for (int i = 0; i < 2; ++i)
      if (const Reading again = read(); again.took < best.took) best = again;
    return best;
  }

  // Asks the kernel. The counter is trusted from then on if its rate is known.
  [[gnu::cold, gnu::noinline]] int64_t set() {
    span_ = 0;
    Reading here = read();
    if (measured_from_.ns == 0) {
      static const bool even = is_even();  // CPUID leaves a virtual machine
      if (even) measured_from_ = read_well();
      return here.ns;
    }
    if (here.ns - measured_from_.ns >= kMeasuring) {
      here = read_well();
      const auto passed = static_cast<unsigned __int128>(here.ns - measured_from_.ns);
      if (here.ticks > measured_from_.ticks)
        rate_ = static_cast<uint64_t>((passed << kShift) / (here.ticks - measured_from_.ticks));
      measured_from_ = here;
    }
    // Which count belongs to the time is not known if it was interrupted.
    if (rate_ == 0 || here.took * rate_ >> kShift > kLongestCall) return here.ns;
    base_ticks_ = here.ticks;
    base_ns_ = here.ns;
    span_ = (kSpan << kShift) / rate_;
    return here.ns;
  }

  uint64_t base_ticks_ = 0, span_ = 0, rate_ = 0;  // rate: ns of a tick, times 2^kShift; 0: not known
  int64_t base_ns_ = 0, last_ = 0;
  Reading measured_from_{};
};

}  // namespace verbena
