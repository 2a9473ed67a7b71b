// SPDX-License-Identifier: BSD-2-Clause
//
// Preloaded: every 16th send(2) of a packet finds the socket full three times, also when poll(2) says that it
// has room, as if other threads had used that each time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#pragma GCC visibility push(default)  // the tests are built with -fvisibility=hidden

enum { kEvery = 16, kTimes = 3 };

long syscall(long number, ...) {
  static _Atomic unsigned count;
  long words[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i) words[i] = va_arg(list, long);
  va_end(list);
  if ((number == SYS_sendmsg || number == SYS_sendmmsg) && count++ % (kEvery + kTimes) < kTimes) {
    errno = EAGAIN;
    return -1;
  }
  long (*const next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
