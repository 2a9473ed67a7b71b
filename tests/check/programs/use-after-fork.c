/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/wait.h>

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  const pid_t child = fork();
  if (child == 0) {
    if (wrong) receive_bytes(qp[0], 2, buf, 64);
    _exit(0);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  close_all();
  return 0;
}
