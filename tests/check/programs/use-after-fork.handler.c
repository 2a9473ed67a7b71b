/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>
#include <sys/wait.h>

/* A handler of another library frees memory while the checker keeps its lock for the child (pthread_atfork(3)). */
static void* block;

static void prepare(void) {
  free(block);
  block = malloc(64);
}

int main(int argc, char** argv) {
  begin(argc, argv);
  NEED(pthread_atfork(prepare, prepare, prepare) == 0);
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
