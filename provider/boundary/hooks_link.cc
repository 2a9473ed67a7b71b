// SPDX-License-Identifier: BSD-2-Clause
//
// Targets of symbolic links. The results are paths below /sys and /dev, like those of the kernel. A
// program that opens such a path gets a file of the node's tree again.
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "boundary/real.h"
#include "boundary/redirect.h"

namespace verbena {
namespace {

template <typename Call>
__attribute__((noinline)) ssize_t read_link_slowly(int folder, const char* path, char* out, size_t size,
                                                   Call& call) {
  Redirect redirect;
  if (!find_redirect(folder, path, &redirect)) return call(path, out, size);
  if (redirect.error != 0) return failed<ssize_t>(redirect.error);
  if (redirect.place != Place::kNode) return call(redirect.for_the_kernel(), out, size);
  char target[PATH_MAX];
  ssize_t length = real_readlink(redirect.path, target, sizeof target);
  if (length < 0) return length;
  length = static_cast<ssize_t>(hide_node_root(target, static_cast<size_t>(length)));
  if (static_cast<size_t>(length) > size) length = static_cast<ssize_t>(size);
  for (ssize_t i = 0; i < length; ++i) out[i] = target[i];
  return length;
}

// `call(path, out, size)` reads the link of any path.
template <typename Call>
ssize_t read_link(int folder, const char* path, char* out, size_t size, Call&& call) {
  if (!may_be_redirected(path)) [[likely]]
    return call(path, out, size);
  return read_link_slowly(folder, path, out, size, call);
}

// `call(path)` returns a canonical path, in the caller's buffer or in a new one.
template <typename Call>
__attribute__((noinline)) char* canonical_slowly(const char* path, Call& call) {
  Redirect redirect;
  if (!find_redirect(AT_FDCWD, path, &redirect)) return call(path);
  if (redirect.error != 0) return failed<char*>(redirect.error);
  char* result = call(redirect.path);  // also for a device file: its own name, not the placeholder's
  if (result == nullptr || redirect.place == Place::kLeft) return result;
  size_t length = 0;
  while (result[length] != 0) ++length;
  result[hide_node_root(result, length)] = 0;
  return result;
}

template <typename Call>
char* canonical(const char* path, Call&& call) {
  if (!may_be_redirected(path)) [[likely]]
    return call(path);
  return canonical_slowly(path, call);
}

}  // namespace

VERBENA_HOOK ssize_t readlink(const char* path, char* buffer, size_t size) noexcept {
  return read_link(AT_FDCWD, path, buffer, size,
                   [&](const char* p, char* out, size_t s) { return real_readlink(p, out, s); });
}

VERBENA_HOOK ssize_t readlinkat(int folder, const char* path, char* buffer, size_t size) noexcept {
  return read_link(folder, path, buffer, size,
                   [&](const char* p, char* out, size_t s) { return real_readlinkat(folder, p, out, s); });
}

// The variants that _FORTIFY_SOURCE uses. If `size` exceeds the buffer, the real function aborts the program.
VERBENA_HOOK ssize_t __readlink_chk(const char* path, char* buffer, size_t size, size_t room) noexcept {
  if (size > room) return real___readlink_chk(path, buffer, size, room);
  return read_link(AT_FDCWD, path, buffer, size,
                   [&](const char* p, char* out, size_t s) { return real___readlink_chk(p, out, s, room); });
}

VERBENA_HOOK ssize_t __readlinkat_chk(int folder, const char* path, char* buffer, size_t size,
                                      size_t room) noexcept {
  if (size > room) return real___readlinkat_chk(folder, path, buffer, size, room);
  return read_link(folder, path, buffer, size, [&](const char* p, char* out, size_t s) {
    return real___readlinkat_chk(folder, p, out, s, room);
  });
}

VERBENA_HOOK char* realpath(const char* path, char* resolved) noexcept {
  return canonical(path, [&](const char* p) { return real_realpath(p, resolved); });
}

VERBENA_HOOK char* __realpath_chk(const char* path, char* resolved, size_t room) noexcept {
  return canonical(path, [&](const char* p) { return real___realpath_chk(p, resolved, room); });
}

VERBENA_HOOK char* canonicalize_file_name(const char* path) noexcept {
  return canonical(path, [&](const char* p) { return real_canonicalize_file_name(p); });
}

}  // namespace verbena
