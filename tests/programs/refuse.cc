// SPDX-License-Identifier: BSD-2-Clause
//
// Starts a program where process_vm_readv(2), process_vm_writev(2) and ptrace(2) are refused, as strict
// containers refuse them (seccomp(2)); and, if so asked, where /proc/self/mem cannot be opened either
// (no_memory_file.c).
//
//   programs_refuse EPERM|ENOSYS COMMAND ...
//   programs_refuse EPERM|ENOSYS+memory-file COMMAND ...
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <string>

namespace {

bool install_filter(unsigned error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
  };
  const sock_fprog filter{sizeof program / sizeof *program, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

int main(int count, char** words) {
  std::string what = count > 2 ? words[1] : "";
  const std::string also = "+memory-file";
  const bool memory_file = what.ends_with(also);
  if (memory_file) what.resize(what.size() - also.size());
  const unsigned error = what == "EPERM" ? EPERM : what == "ENOSYS" ? ENOSYS : 0;
  if (error == 0) {
    fprintf(stderr, "programs_refuse EPERM|ENOSYS[+memory-file] COMMAND ...\n");
    return 2;
  }
  if (memory_file) setenv("LD_PRELOAD", VERBENA_NO_MEMORY_FILE, 1);
  if (!install_filter(error)) {
    perror("seccomp");
    return 77;
  }
  execvp(words[2], words + 2);
  perror(words[2]);
  return 2;
}
