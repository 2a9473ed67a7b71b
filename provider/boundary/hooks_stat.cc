// SPDX-License-Identifier: BSD-2-Clause
//
// The whole stat family. fstat needs no hook: what a device file's descriptor refers to is a character device
// with the right number by itself. The __xstat forms are what programs call that were linked before
// glibc 2.33.
#include <fcntl.h>
#include <sys/stat.h>

#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {

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
  return redirected(folder, path, [&](const char* p) { return real_fstatat(folder, p, out, flags); });
}

VERBENA_HOOK int fstatat64(int folder, const char* path, struct stat64* out, int flags) noexcept {
  return redirected(folder, path, [&](const char* p) { return real_fstatat64(folder, p, out, flags); });
}

VERBENA_HOOK int statx(int folder, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
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
