// SPDX-License-Identifier: BSD-2-Clause
#include <fcntl.h>

#include <cstdarg>

#include "boundary/descriptors.h"
#include "boundary/manager.h"
#include "boundary/provider.h"
#include "boundary/real.h"
#include "boundary/redirect.h"
#include "boundary/refusal.h"

namespace verbena {
namespace {

// `call(path, flags)` is a function of the open family.
template <typename Call>
__attribute__((noinline)) int open_slowly(int folder, const char* path, int flags, Call& call) {
  Redirect redirect;
  if (!find_redirect(folder, path, &redirect)) return call(path, flags);
  if (restore_missing_tree()) find_redirect(folder, path, &redirect);
  if (const int error = open_refusal(redirect, flags); error != 0) return failed<int>(error);
  if (redirect.place == Place::kLeft) return call(redirect.path, flags);
  if (redirect.place == Place::kManager && (flags & (O_PATH | O_DIRECTORY)) == 0) return open_manager(flags);
  if (redirect.place == Place::kNode) refresh_counter(redirect.path);
  const int fd = call(redirect.for_the_kernel(), flags & ~(O_CREAT | O_EXCL | O_TRUNC));
  if (fd >= 0 && redirect.place == Place::kDevice && (flags & O_PATH) == 0) adopt_descriptor(fd);
  return fd;
}

template <typename Call>
int open_anywhere(int folder, const char* path, int flags, Call&& call) {
  if (!may_be_redirected(path)) [[likely]]
    return call(path, flags);
  return open_slowly(folder, path, flags, call);
}

// open(2) has a mode argument only if the call may create a file.
constexpr bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

#define VERBENA_TAKE_MODE(mode, flags) \
  mode_t mode = 0;                     \
  if (takes_mode(flags)) {             \
    va_list arguments;                 \
    va_start(arguments, flags);        \
    mode = va_arg(arguments, mode_t);  \
    va_end(arguments);                 \
  }

VERBENA_HOOK int open(const char* path, int flags, ...) {
  VERBENA_TAKE_MODE(mode, flags)
  return open_anywhere(AT_FDCWD, path, flags, [&](const char* p, int f) { return real_open(p, f, mode); });
}

VERBENA_HOOK int open64(const char* path, int flags, ...) {
  VERBENA_TAKE_MODE(mode, flags)
  return open_anywhere(AT_FDCWD, path, flags, [&](const char* p, int f) { return real_open64(p, f, mode); });
}

VERBENA_HOOK int openat(int folder, const char* path, int flags, ...) {
  VERBENA_TAKE_MODE(mode, flags)
  return open_anywhere(folder, path, flags,
                       [&](const char* p, int f) { return real_openat(folder, p, f, mode); });
}

VERBENA_HOOK int openat64(int folder, const char* path, int flags, ...) {
  VERBENA_TAKE_MODE(mode, flags)
  return open_anywhere(folder, path, flags,
                       [&](const char* p, int f) { return real_openat64(folder, p, f, mode); });
}

// The variants that _FORTIFY_SOURCE uses for calls without a mode. If `flags` require a mode, the real
// function aborts the program.
VERBENA_HOOK int __open_2(const char* path, int flags) {
  return open_anywhere(AT_FDCWD, path, flags, [&](const char* p, int f) { return real___open_2(p, f); });
}

VERBENA_HOOK int __open64_2(const char* path, int flags) {
  return open_anywhere(AT_FDCWD, path, flags, [&](const char* p, int f) { return real___open64_2(p, f); });
}

VERBENA_HOOK int __openat_2(int folder, const char* path, int flags) {
  return open_anywhere(folder, path, flags,
                       [&](const char* p, int f) { return real___openat_2(folder, p, f); });
}

VERBENA_HOOK int __openat64_2(int folder, const char* path, int flags) {
  return open_anywhere(folder, path, flags,
                       [&](const char* p, int f) { return real___openat64_2(folder, p, f); });
}

VERBENA_HOOK int creat(const char* path, mode_t mode) {
  constexpr int kFlags = O_CREAT | O_WRONLY | O_TRUNC;
  return open_anywhere(AT_FDCWD, path, kFlags, [&](const char* p, int f) {
    return f == kFlags ? real_creat(p, mode) : real_open(p, f, mode);
  });
}

VERBENA_HOOK int creat64(const char* path, mode_t mode) {
  constexpr int kFlags = O_CREAT | O_WRONLY | O_TRUNC;
  return open_anywhere(AT_FDCWD, path, kFlags, [&](const char* p, int f) {
    return f == kFlags ? real_creat64(p, mode) : real_open64(p, f, mode);
  });
}

}  // namespace verbena
