/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/wait.h>

int main(int argc, char** argv) {
  begin(argc, argv);
  if (!wrong) NEED(ibv_fork_init() == 0);
  open_pair();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  close_all();
  return 0;
}
