// SPDX-License-Identifier: BSD-2-Clause
//
// The lock of a ring that mostly one thread writes into. The first thread that comes owns it, and takes it
// with two stores: an atomic exchange would wait until all that it has written before has left the processor,
// which is half of the time of a short record. The first other thread that comes takes the ownership away by
// membarrier(2): the owner has seen that, or the other sees that the owner is busy. From then on it is a
// SpinLock for all.
//
// In memory of one process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "adapter/locks.h"

namespace verbena::record {

class WriterLock {
  struct Ownership {
    std::atomic<const void*> owner{nullptr};  // a thread's `mark`; nullptr: the next that comes; kEverybody
    std::atomic<bool> is_busy{false};         // the owner holds the lock
  };

 public:
  WriterLock() { ownerships_[0].owner.store(kEverybody, std::memory_order_relaxed); }

  using Hold = Ownership*;

  // For unlock().
  [[nodiscard]] Hold lock() {
    Ownership& own = ownerships_[turn_.load(std::memory_order_acquire)];
    if (own.owner.load(std::memory_order_relaxed) == &mark) [[likely]] {
      own.is_busy.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor's is take_away()'s
      if (own.owner.load(std::memory_order_relaxed) == &mark) [[likely]]
        return &own;
      own.is_busy.store(false, std::memory_order_release);
    }
    return lock_slowly();
  }
  void unlock(Hold hold) {
    if (hold != nullptr)
      hold->is_busy.store(false, std::memory_order_release);
    else
      spin_.unlock();
  }

  // Can there be owners in this process? Asks the kernel; not while the lock is held.
  static bool can_be_owned();
  // Unlocks what lock() of this thread has locked, and the next thread that comes owns it. kMostOwners times:
  // from then on it has no owner.
  void unlock_for_new_owner(Hold hold);

  // In the child of fork(2), whose only thread this is: a thread of the parent may have held it.
  void forget();

 private:
  static constexpr uint32_t kMostOwners = 15;
  static const void* const kEverybody;
  // Its address is the thread's.
  static constinit thread_local char mark __attribute__((tls_model("initial-exec")));

  Hold lock_slowly();
  void take_away(Ownership& own);

  SpinLock spin_;
  std::atomic<uint32_t> turn_{0};
  // One after the other: a thread that was held up in lock() may still write into an older one.
  std::array<Ownership, kMostOwners + 1> ownerships_;
};

}  // namespace verbena::record
