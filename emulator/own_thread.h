// SPDX-License-Identifier: BSD-2-Clause
//
// Threads of the emulator in the program's process.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace verbena {

// Creates a thread with a stack of 512 KiB and all signals blocked: the program's signals are for the
// program's threads. errno values of pthread_create(3).
inline int create_own_thread(pthread_t* thread, void* (*main)(void*), void* context) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 * 1024);
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  const int error = pthread_create(thread, &attributes, main, context);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace verbena
