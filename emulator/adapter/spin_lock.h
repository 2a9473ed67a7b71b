// SPDX-License-Identifier: BSD-2-Clause
//
// A lock for the few instructions of a data path call. A waiter spins briefly, then yields: the holder may
// not be scheduled. Never held over a system call that can block.
#pragma once

#include <sched.h>

#include <atomic>

namespace verbena {

class SpinLock {
 public:
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void lock() {
    for (unsigned spins = 0; !try_lock();) {
      while (taken_.load(std::memory_order_relaxed))
        if (++spins > 64) sched_yield();
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace verbena
