/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>
#include <sys/wait.h>

/* A library's lock: fork takes it for the child (pthread_atfork(3)), and a thread frees memory while it holds it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done;

static void prepare(void) { pthread_mutex_lock(&lock); }
static void release(void) { pthread_mutex_unlock(&lock); }
static __attribute__((constructor)) void enter(void) { pthread_atfork(prepare, release, release); }

static void* allocate(void* unused) {
  while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
    pthread_mutex_lock(&lock);
    free(malloc(64));
    pthread_mutex_unlock(&lock);
  }
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  pthread_t thread;
  NEED(pthread_create(&thread, NULL, allocate, NULL) == 0);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (wrong) receive_bytes(qp[0], 2, buf, 64);
      _exit(0);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
  }
  __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  close_all();
  return 0;
}
