// SPDX-License-Identifier: BSD-2-Clause
//
// Keeps calls of the program that change its mappings apart from moments in which this process acts on the
// list of mappings that it has read. The calls wait while the barrier is closed. They may come from the
// program's allocator, with its locks held: between close() and open() malloc(3) must not be called.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace verbena {

class MappingBarrier {
 public:
  // Around a call that changes mappings. Any thread.
  void enter() {
    for (;;) {
      inside_.fetch_add(1, std::memory_order_seq_cst);
      if (!closed_.load(std::memory_order_seq_cst)) [[likely]]
        return;
      inside_.fetch_sub(1, std::memory_order_seq_cst);
      while (closed_.load(std::memory_order_acquire)) wait();
    }
  }
  void leave() { inside_.fetch_sub(1, std::memory_order_release); }

  // On return no call is under way, and none begins before open(). One thread at a time.
  void close() {
    closed_.store(true, std::memory_order_seq_cst);
    while (inside_.load(std::memory_order_seq_cst) != 0) wait();
  }
  void open() { closed_.store(false, std::memory_order_release); }

  // In a forked child: the calls were those of other threads of the parent.
  void reset() {
    inside_.store(0, std::memory_order_relaxed);
    closed_.store(false, std::memory_order_relaxed);
  }

 private:
  static void wait() {
    constexpr timespec kMoment{0, 20'000};
    syscall(SYS_nanosleep, &kMoment, nullptr);
  }

  std::atomic<uint32_t> inside_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace verbena
