// SPDX-License-Identifier: BSD-2-Clause
//
// A lock in shared memory that the kernel marks when its holder's thread ends in any way, exec included
// (get_robust_list(2), and robust-futex-ABI.rst in Linux' Documentation/locking). Nobody can wait for it.
//
// The mutexes of pthread_mutexattr_setrobust(3) do the same, but have pointers beside the word. Damage of
// shared memory would make each process that unlocks one write anywhere.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena {

// The word: 0, or the holder's TID. kOwnerDied: set by the kernel, the holder has ended.
inline constexpr uint32_t kOwnerDied = FUTEX_OWNER_DIED;
inline constexpr uint32_t kTidMask = FUTEX_TID_MASK;

// One thread's hold on one lock at a time. The thread holds no robust mutex of pthread while this object
// exists: the kernel knows one list of locks per thread.
class RobustLock {
 public:
  RobustLock();
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;
  ~RobustLock();  // in the thread of the constructor; unlocks

  // 0; EOWNERDEAD: locked, too, and the last holder ended without unlocking; EBUSY. Precondition: this object
  // holds no lock.
  int try_lock(std::atomic<uint32_t>& word);
  void unlock();  // of no lock: nothing

 private:
  robust_list_head head_{};
  robust_list entry_{};
  robust_list_head* of_libc_ = nullptr;
  uint32_t thread_;
  std::atomic<uint32_t>* word_ = nullptr;
};

}  // namespace verbena
