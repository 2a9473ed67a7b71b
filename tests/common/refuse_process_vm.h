// SPDX-License-Identifier: BSD-2-Clause
//
// Refusals of process_vm_readv(2) and process_vm_writev(2) as in strict containers and on other kernels, for
// this process and its children.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>

namespace verbena::test {

// seccomp(2). False: the machine does not allow it. Async-signal-safe, for a child after fork(2).
inline bool filter_calls(sock_filter* rules, unsigned short count) {
  const sock_fprog program = {.len = count, .filter = rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The calls fail with EPERM. False: as above.
inline bool refuse_process_vm() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  return filter_calls(rules, sizeof rules / sizeof *rules);
}

// The calls fail with ESRCH for every number but that of process `pid` itself, while Linux also takes the
// numbers of its threads. False: as above.
inline bool process_vm_knows_only(pid_t pid) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),  // its low half, little endian
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(pid), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ESRCH),
  };
  return filter_calls(rules, sizeof rules / sizeof *rules);
}

}  // namespace verbena::test
