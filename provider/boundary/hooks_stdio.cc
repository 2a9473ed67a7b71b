// SPDX-License-Identifier: BSD-2-Clause
#include <fcntl.h>
#include <stdio.h>

#include "boundary/provider.h"
#include "boundary/real.h"
#include "boundary/redirect.h"
#include "boundary/refusal.h"

namespace verbena {
namespace {

// The open(2) flags that fopen(3) uses for this mode.
int flags_of(const char* mode) {
  int flags = mode[0] == 'r' ? O_RDONLY : mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_WRONLY | O_CREAT;
  for (const char* at = mode + 1; mode[0] != 0 && *at != 0 && *at != ','; ++at) {
    if (*at == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*at == 'x') flags |= O_EXCL;
  }
  return flags;
}

template <typename Call>
__attribute__((noinline)) FILE* open_slowly(const char* path, const char* mode, Call& call) {
  Redirect redirect;
  if (!find_redirect(AT_FDCWD, path, &redirect)) return call(path);
  if (const int error = open_refusal(redirect, flags_of(mode)); error != 0) return failed<FILE*>(error);
  if (redirect.place == Place::kNode) refresh_counter(redirect.path);
  return call(redirect.for_the_kernel());
}

template <typename Call>
FILE* open_anywhere(const char* path, const char* mode, Call&& call) {
  if (!may_be_redirected(path)) [[likely]]
    return call(path);
  return open_slowly(path, mode, call);
}

}  // namespace

VERBENA_HOOK FILE* fopen(const char* path, const char* mode) {
  return open_anywhere(path, mode, [&](const char* p) { return real_fopen(p, mode); });
}

VERBENA_HOOK FILE* fopen64(const char* path, const char* mode) {
  return open_anywhere(path, mode, [&](const char* p) { return real_fopen64(p, mode); });
}

// `path` may be null: then only the mode of the stream changes. If a path is refused, the stream stays open,
// whereas libc would close it.
VERBENA_HOOK FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return open_anywhere(path, mode, [&](const char* p) { return real_freopen(p, mode, stream); });
}

VERBENA_HOOK FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return open_anywhere(path, mode, [&](const char* p) { return real_freopen64(p, mode, stream); });
}

}  // namespace verbena
