// SPDX-License-Identifier: BSD-2-Clause
//
// The stat family. An open uverbsN is a character device with the right device number. An open rdma_cm is a
// pipe, so fstat(2) is redirected to return the same as stat(2) on its path. Programs that were linked with a
// glibc older than 2.33 call the __xstat functions.
#include <fcntl.h>
#include <sys/stat.h>

#include "boundary/descriptors.h"
#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {
namespace {

bool shows_placeholder(int fd) { return may_be_device(fd) && is_pipe_of_device(fd); }

bool shows_placeholder(int fd, const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && may_be_device(fd) && path != nullptr && path[0] == 0 &&
         is_pipe_of_device(fd);
}

}  // namespace

VERBENA_HOOK int fstat(int fd, struct stat* out) noexcept {
  return shows_placeholder(fd) ? real_stat(kPlaceholder, out) : real_fstat(fd, out);
}

VERBENA_HOOK int fstat64(int fd, struct stat64* out) noexcept {
  return shows_placeholder(fd) ? real_stat64(kPlaceholder, out) : real_fstat64(fd, out);
}

VERBENA_HOOK int __fxstat(int version, int fd, struct stat* out) noexcept {
  return shows_placeholder(fd) ? real___xstat(version, kPlaceholder, out) : real___fxstat(version, fd, out);
}

VERBENA_HOOK int __fxstat64(int version, int fd, struct stat64* out) noexcept {
  return shows_placeholder(fd) ? real___xstat64(version, kPlaceholder, out)
                               : real___fxstat64(version, fd, out);
}

VERBENA_HOOK int stat(const char* path, struct stat* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_stat(p, out); });
}

VERBENA_HOOK int stat64(const char* path, struct stat64* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_stat64(p, out); });
}

VERBENA_HOOK int lstat(const char* path, struct stat* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_lstat(p, out); });
}

VERBENA_HOOK int lstat64(const char* path, struct stat64* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_lstat64(p, out); });
}

VERBENA_HOOK int fstatat(int folder, const char* path, struct stat* out, int flags) noexcept {
  if (shows_placeholder(folder, path, flags)) [[unlikely]]
    return real_fstatat(AT_FDCWD, kPlaceholder, out, flags & ~AT_EMPTY_PATH);
  return redirected(folder, path, [&](const char* p) { return real_fstatat(folder, p, out, flags); });
}

VERBENA_HOOK int fstatat64(int folder, const char* path, struct stat64* out, int flags) noexcept {
  if (shows_placeholder(folder, path, flags)) [[unlikely]]
    return real_fstatat64(AT_FDCWD, kPlaceholder, out, flags & ~AT_EMPTY_PATH);
  return redirected(folder, path, [&](const char* p) { return real_fstatat64(folder, p, out, flags); });
}

VERBENA_HOOK int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
  if (shows_placeholder(folder, path, flags)) [[unlikely]]
    return real_statx(AT_FDCWD, kPlaceholder, flags & ~AT_EMPTY_PATH, mask, out);
  return redirected(folder, path, [&](const char* p) { return real_statx(folder, p, flags, mask, out); });
}

VERBENA_HOOK int __xstat(int version, const char* path, struct stat* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real___xstat(version, p, out); });
}

VERBENA_HOOK int __xstat64(int version, const char* path, struct stat64* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real___xstat64(version, p, out); });
}

VERBENA_HOOK int __lxstat(int version, const char* path, struct stat* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real___lxstat(version, p, out); });
}

VERBENA_HOOK int __lxstat64(int version, const char* path, struct stat64* out) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real___lxstat64(version, p, out); });
}

VERBENA_HOOK int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags) noexcept {
  return redirected(folder, path,
                    [&](const char* p) { return real___fxstatat(version, folder, p, out, flags); });
}

VERBENA_HOOK int __fxstatat64(int version, int folder, const char* path, struct stat64* out,
                              int flags) noexcept {
  return redirected(folder, path,
                    [&](const char* p) { return real___fxstatat64(version, folder, p, out, flags); });
}

}  // namespace verbena
