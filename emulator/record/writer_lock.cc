// SPDX-License-Identifier: BSD-2-Clause
#include "record/writer_lock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::record {
namespace {

constexpr char kNoThread = 0;
// us. All that a processor has written is seen by the others long before.
constexpr useconds_t kLongEnough = 10'000;

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

const void* const WriterLock::kEverybody = &kNoThread;
constinit thread_local char WriterLock::mark = 0;

WriterLock::Hold WriterLock::lock_slowly() {
  Ownership& own = ownerships_[turn_.load(std::memory_order_acquire)];
  const void* nobody = nullptr;
  if (own.owner.load(std::memory_order_relaxed) == nullptr &&
      own.owner.compare_exchange_strong(nobody, &mark, std::memory_order_acq_rel))
    return lock();
  spin_.lock();
  // An owner may have given the lock to a new one meanwhile (unlock_for_new_owner()), without a look at
  // spin_.
  for (uint32_t turn = turn_.load(std::memory_order_acquire);;) {
    take_away(ownerships_[turn]);
    const uint32_t now = turn_.load(std::memory_order_acquire);
    if (now == turn) return nullptr;
    turn = now;
  }
}

void WriterLock::take_away(Ownership& own) {
  if (own.owner.load(std::memory_order_relaxed) == kEverybody) return;
  own.owner.store(kEverybody, std::memory_order_seq_cst);
  // A seccomp filter may have come since it was registered.
  if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) usleep(kLongEnough);
  while (own.is_busy.load(std::memory_order_acquire)) sched_yield();
}

bool WriterLock::can_be_owned() { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

void WriterLock::unlock_for_new_owner(Hold hold) {
  const uint32_t turn = turn_.load(std::memory_order_relaxed);
  // An owner does not look at spin_: this is the last thing that its holder does.
  if (turn < kMostOwners) turn_.store(turn + 1, std::memory_order_release);
  unlock(hold);
}

void WriterLock::forget() {
  for (Ownership& own : ownerships_) {
    own.owner.store(kEverybody, std::memory_order_relaxed);
    own.is_busy.store(false, std::memory_order_relaxed);
  }
  spin_.unlock();
}

}  // namespace verbena::record
