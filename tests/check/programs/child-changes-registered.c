/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/wait.h>

/* The child answers for its parent, which never sees it. `right` writes to memory of its own. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char own[8];
  const pid_t child = fork();
  if (child == 0) {
    strcpy(wrong ? buf : own, "reply");
    _exit(0);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  close_all();
  return 0;
}
