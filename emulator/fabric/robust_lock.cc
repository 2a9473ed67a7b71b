// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/robust_lock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {
namespace {

// Orders what the kernel sees if the thread ends between two instructions.
void in_order() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace

RobustLock::RobustLock() : thread_(static_cast<uint32_t>(syscall(SYS_gettid))) {
  head_.list.next = &head_.list;
  size_t size = 0;
  syscall(SYS_get_robust_list, 0, &of_libc_, &size);
  syscall(SYS_set_robust_list, &head_, sizeof head_);
}

RobustLock::~RobustLock() {
  unlock();
  syscall(SYS_set_robust_list, of_libc_, sizeof head_);
}

int RobustLock::try_lock(std::atomic<uint32_t>& word) {
  // The kernel finds the word at this distance from the entry. It looks at the pending entry as well, and
  // acts only where the word names this thread.
  head_.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&entry_);
  in_order();
  head_.list_op_pending = &entry_;
  in_order();
  uint32_t seen = word.load(std::memory_order_acquire);
  const auto is_free = [&] { return seen == 0 || (seen & kOwnerDied) != 0; };
  while (is_free() && !word.compare_exchange_weak(seen, thread_, std::memory_order_acq_rel)) {
  }
  if (is_free()) {
    entry_.next = &head_.list;
    in_order();
    head_.list.next = &entry_;
    word_ = &word;
  }
  in_order();
  head_.list_op_pending = nullptr;
  if (seen == 0) return 0;
  return is_free() ? EOWNERDEAD : EBUSY;
}

void RobustLock::unlock() {
  if (word_ == nullptr) return;
  head_.list_op_pending = &entry_;
  in_order();
  head_.list.next = &head_.list;
  in_order();
  uint32_t own = thread_;  // not a word that somebody has damaged
  word_->compare_exchange_strong(own, 0, std::memory_order_acq_rel);
  in_order();
  head_.list_op_pending = nullptr;
  word_ = nullptr;
}

}  // namespace verbena
