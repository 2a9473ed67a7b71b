// SPDX-License-Identifier: BSD-2-Clause
//
// Preloaded: opening /proc/self/mem fails, as in a process that is not dumpable (proc(5)).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

typedef int (*Open)(const char*, int, ...);

static int open_as(const char* name, const char* path, int flags, int mode) {
  if (strcmp(path, "/proc/self/mem") == 0) {
    errno = EACCES;
    return -1;
  }
  return ((Open)dlsym(RTLD_NEXT, name))(path, flags, mode);
}

#define DEFINE(name)                                                                  \
  __attribute__((visibility("default"))) int name(const char* path, int flags, ...) { \
    va_list more;                                                                     \
    va_start(more, flags);                                                            \
    const int mode = va_arg(more, int);                                               \
    va_end(more);                                                                     \
    return open_as(#name, path, flags, mode);                                         \
  }

DEFINE(open)
DEFINE(open64)
