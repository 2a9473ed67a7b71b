// SPDX-License-Identifier: BSD-2-Clause
//
// A hook calls `redirected` with a function that does the work for any path:
//
//   return redirected(AT_FDCWD, path, [&](const char* p) { return real_stat(p, status); });
//
// For nearly every path, `redirected` does no more than call this function.
#pragma once

#include <fcntl.h>
#include <limits.h>

#include <cstddef>

#include "boundary/environment.h"
#include "boundary/paths.h"
#include "boundary/placeholder_file.h"
#include "boundary/real.h"

namespace verbena {

struct Redirect {
  Place place;
  int error;  // if not 0, the hook fails with this errno
  char path[PATH_MAX];

  bool is_device() const { return place == Place::kDevice || place == Place::kManager; }
  const char* for_the_kernel() const { return is_device() ? kPlaceholder : path; }
};

// Finds where `path`, relative to `folder`, is redirected to. False: the path is not redirected, and *out
// has no meaning. Async-signal-safe, also between vfork and exec. Preserves errno.
bool find_redirect(int folder, const char* path, Redirect* out);

// Is this open folder (or AT_FDCWD) dev/infiniband of the node's tree, as a redirected opendir(3) opens it?
bool is_device_folder(int folder);

// Is this open folder one of the node's class folders, which list the devices?
bool is_class_folder(int folder);

// Removes the path of the node's root from the start of `text`, a path from the kernel. The result is a path
// below /sys or /dev. Any other text stays as it is. Returns the new length.
size_t hide_node_root(char* text, size_t length);

inline bool may_be_redirected(const char* path) { return has_node() && may_concern_node(path); }

template <typename Call>
__attribute__((noinline)) auto redirected_slowly(int folder, const char* path, Call& call) {
  using Result = decltype(call(path));
  Redirect redirect;
  if (!find_redirect(folder, path, &redirect)) return call(path);
  if (redirect.error != 0) return failed<Result>(redirect.error);
  return call(redirect.for_the_kernel());
}

template <typename Call>
inline auto redirected(int folder, const char* path, Call&& call) {
  if (!may_be_redirected(path)) [[likely]]
    return call(path);
  return redirected_slowly(folder, path, call);
}

}  // namespace verbena
