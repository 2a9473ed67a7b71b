// SPDX-License-Identifier: BSD-2-Clause
#include <fcntl.h>
#include <unistd.h>

#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {

VERBENA_HOOK int access(const char* path, int mode) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_access(p, mode); });
}

VERBENA_HOOK int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  return redirected(folder, path, [&](const char* p) { return real_faccessat(folder, p, mode, flags); });
}

VERBENA_HOOK int euidaccess(const char* path, int mode) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_euidaccess(p, mode); });
}

VERBENA_HOOK int eaccess(const char* path, int mode) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_eaccess(p, mode); });
}

}  // namespace verbena
