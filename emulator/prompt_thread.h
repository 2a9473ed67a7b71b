// SPDX-License-Identifier: BSD-2-Clause
//
// A thread that does little and sleeps asks the scheduler to run for short times. When it wakes, it then runs
// at once on a processor on which a thread of the program spins, instead of some milliseconds later. Needs no
// right, and leaves each thread its share of the processor. Linux 6.12 and later; earlier kernels take no
// notice.
//
// Sources: sched_setattr(2); the kernel's __setparam_fair() (sched_runtime of SCHED_OTHER, 0.1 to 100 ms) and
// check_preempt_wakeup_fair() (PREEMPT_SHORT).
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace verbena {

// For the calling thread. Nothing else of its scheduling changes; one with another policy is left alone.
inline void ask_to_run_promptly() {
  constexpr uint64_t kShortest = 100'000;  // ns
  struct {  // struct sched_attr, SCHED_ATTR_SIZE_VER0; glibc has it from 2.41 on
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  static_assert(sizeof attributes == 48);
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 ||
      attributes.policy != SCHED_OTHER)
    return;
  attributes.runtime = kShortest;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace verbena
