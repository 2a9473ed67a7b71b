// SPDX-License-Identifier: BSD-2-Clause
//
// Reading of extended attributes: ls -l, cp -a and find read the ACL of a file by its path.
#include <fcntl.h>
#include <sys/xattr.h>

#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {

VERBENA_HOOK ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_getxattr(p, name, value, size); });
}

VERBENA_HOOK ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_lgetxattr(p, name, value, size); });
}

VERBENA_HOOK ssize_t listxattr(const char* path, char* list, size_t size) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_listxattr(p, list, size); });
}

VERBENA_HOOK ssize_t llistxattr(const char* path, char* list, size_t size) noexcept {
  return redirected(AT_FDCWD, path, [&](const char* p) { return real_llistxattr(p, list, size); });
}

}  // namespace verbena
