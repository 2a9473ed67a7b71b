// SPDX-License-Identifier: BSD-2-Clause
//
// Locks for the few instructions of a data path call. Never held over a system call that can block.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace verbena {

// A waiter spins briefly, then yields: the holder may not be scheduled.
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

// A lock as SpinLock that is biased towards a thread that has taken it often, and alone: that thread takes it
// without a locked instruction, which on the data path costs as much as the work under the lock. Another
// thread that wants it revokes the bias first, with membarrier(2), which takes some microseconds; after each
// revocation a thread has to take the lock twice as often before the lock is biased again.
//
// Unlike a SpinLock, lock() is no full fence.
//
// The thread with the bias announces itself, then looks whether it still has the bias. The other one takes
// the bias away, then looks whether the thread has announced itself. Each must see the other's first step if
// the other does not see its own: the former needs no fence for that, since membarrier(2) makes each thread
// of the process execute one.
//
// A thread may lose the bias, and the processor, before it announces itself, and do so, in vain, when others
// have had the bias. So each thread that gets it has a place of its own for the announcement, and keeps it: a
// lock is biased towards four threads in its life.
class BiasedLock {
 public:
  void lock() {
    const uintptr_t owner = owner_.load(std::memory_order_relaxed);
    if ((owner & ~kPlace) == this_thread()) [[likely]] {
      std::atomic<bool>& announced = announced_[owner & kPlace];
      announced.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (owner_.load(std::memory_order_relaxed) == owner) [[likely]]
        return;
      announced.store(false, std::memory_order_relaxed);
    }
    lock_without_bias();
  }
  void unlock() {
    if (is_held_without_bias_) [[unlikely]]
      return unlock_without_bias();
    announced_[place_].store(false, std::memory_order_release);
  }

 private:
  static constexpr uintptr_t kPlaces = 4, kPlace = kPlaces - 1;

  // A thread that comes after another one may have the same. It has been created after the other one ended.
  static uintptr_t this_thread() {
    alignas(kPlaces) __attribute__((tls_model("initial-exec"))) static thread_local constinit char here = 0;
    return reinterpret_cast<uintptr_t>(&here);
  }
  void lock_without_bias();
  void unlock_without_bias();
  void revoke();
  void bias();

  // The thread that has the bias, and its place; 0: none. Written under taken_.
  std::atomic<uintptr_t> owner_{0};
  // Of the thread with that place, which alone writes it: it has the lock, or is about to look at owner_.
  std::atomic<bool> announced_[kPlaces] = {};
  bool is_held_without_bias_ = false;  // under the lock, as the next one
  uint8_t place_ = 0;                  // of the last bias
  SpinLock taken_;                     // of threads without the bias
  uint8_t revocations_ = 0;            // under taken_, as the rest
  uint32_t in_a_row_ = 0;              // that `last_` took the lock
  uintptr_t last_ = 0;
  uintptr_t threads_[kPlaces] = {};  // that have had the bias, by place
};

// Lets locks be biased from now on, if the kernel offers membarrier(2). Any thread; again in a forked child.
void allow_biased_locks();

}  // namespace verbena
