// SPDX-License-Identifier: BSD-2-Clause
//
// Threads of the emulator in the program's process.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

#include "prompt_thread.h"

namespace verbena {
namespace own_thread {

struct Start {
  void* (*main)(void*);
  void* context;
  sem_t has_memory;
};

// glibc makes a thread's arena with its first malloc(3), and calls munmap(2) for that. libfabric replaces the
// first instructions of munmap(2) in the running process, as other monitors of memory do, and a thread that
// is just there executes half of them (SIGSEGV). So the arena is made before the program goes on.
inline void* run(void* given) {
  auto* const start = static_cast<Start*>(given);
  void* const memory = malloc(1);
  asm volatile("" : : "r"(memory) : "memory");  // not optimised away
  free(memory);
  void* (*const main)(void*) = start->main;
  void* const context = start->context;
  ask_to_run_promptly();
  sem_post(&start->has_memory);  // `start` is gone
  return main(context);
}

}  // namespace own_thread

// Creates a thread with a stack of 512 KiB and all signals blocked: the program's signals are for the
// program's threads. errno values of pthread_create(3).
inline int create_own_thread(pthread_t* thread, void* (*main)(void*), void* context) {
  own_thread::Start start{main, context, {}};
  sem_init(&start.has_memory, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 * 1024);
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  const int error = pthread_create(thread, &attributes, own_thread::run, &start);
  while (error == 0 && sem_wait(&start.has_memory) != 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  sem_destroy(&start.has_memory);
  return error;
}

}  // namespace verbena
