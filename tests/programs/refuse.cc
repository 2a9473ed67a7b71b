// SPDX-License-Identifier: BSD-2-Clause
//
// Starts a program where process_vm_readv(2), process_vm_writev(2) and ptrace(2) are refused, as in strict
// containers (seccomp(2)); on request /proc/self/mem cannot be opened either (no_memory_file.c).
//
//   programs_refuse EPERM|ENOSYS COMMAND ...
//   programs_refuse EPERM|ENOSYS+memory-file COMMAND ...
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "common/refuse_calls.h"

int main(int count, char** words) {
  std::string what = count > 2 ? words[1] : "";
  const std::string also = "+memory-file";
  const bool memory_file = what.ends_with(also);
  if (memory_file) what.resize(what.size() - also.size());
  const int error = what == "EPERM" ? EPERM : what == "ENOSYS" ? ENOSYS : 0;
  if (error == 0) {
    fprintf(stderr, "programs_refuse EPERM|ENOSYS[+memory-file] COMMAND ...\n");
    return 2;
  }
  if (memory_file) setenv("LD_PRELOAD", VERBENA_NO_MEMORY_FILE, 1);
  if (!verbena::test::refuse_calls(
          {{SYS_process_vm_readv, error}, {SYS_process_vm_writev, error}, {SYS_ptrace, error}})) {
    perror("seccomp");
    return 77;
  }
  execvp(words[2], words + 2);
  perror(words[2]);
  return 2;
}
