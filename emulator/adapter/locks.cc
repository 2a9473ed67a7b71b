// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/locks.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "keep_errno.h"

namespace verbena {
namespace {

// The thread sanitizer does not know membarrier(2).
#if defined(__SANITIZE_THREAD__)
constexpr bool kMayBias = false;
#else
constexpr bool kMayBias = true;
#endif

constexpr uint32_t kInARow = 64;        // before the first bias
constexpr uint8_t kMostDoublings = 16;  // of kInARow

constinit std::atomic<bool> allowed{false};

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// On return each thread of the process has executed a full fence.
void fence_all_threads() {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  // A sandbox that was set up meanwhile refuses it. A thread that does not run has executed a fence; one that
  // runs keeps a store to itself for less than a microsecond.
  constexpr timespec kLongEnough{0, 1'000'000};
  syscall(SYS_nanosleep, &kLongEnough, nullptr);
}

}  // namespace

void allow_biased_locks() {
  const KeepErrno guard;
  allowed.store(kMayBias && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0,
                std::memory_order_relaxed);
}

void BiasedLock::lock_without_bias() {
  taken_.lock();
  const uintptr_t self = this_thread();
  if (owner_.load(std::memory_order_relaxed) != 0) revoke();
  is_held_without_bias_ = true;
  in_a_row_ = last_ == self ? in_a_row_ + 1 : 1;
  last_ = self;
}

void BiasedLock::unlock_without_bias() {
  is_held_without_bias_ = false;
  if (in_a_row_ >= kInARow << revocations_ && allowed.load(std::memory_order_relaxed)) bias();
  taken_.unlock();
}

// Towards the thread that has taken the lock last, if it has a place, or one is left.
void BiasedLock::bias() {
  for (uint8_t place = 0; place < kPlaces; ++place) {
    if (threads_[place] != 0 && threads_[place] != last_) continue;
    threads_[place] = last_;
    place_ = place;
    owner_.store(last_ | place, std::memory_order_relaxed);
    return;
  }
  in_a_row_ = 0;  // none is left: not to be looked for at each unlock()
}

void BiasedLock::revoke() {
  const KeepErrno guard;
  const std::atomic<bool>& announced = announced_[owner_.load(std::memory_order_relaxed) & kPlace];
  owner_.store(0, std::memory_order_relaxed);
  fence_all_threads();
  // The owner may have the lock, and not be scheduled.
  for (unsigned spins = 0; announced.load(std::memory_order_acquire);)
    if (++spins > 64) sched_yield();
  in_a_row_ = 0;
  last_ = 0;
  revocations_ = static_cast<uint8_t>(std::min<int>(revocations_ + 1, kMostDoublings));
}

}  // namespace verbena
