// SPDX-License-Identifier: BSD-2-Clause
//
// How a hook redirects its path: it passes `redirected` a function that does the work for any path.
//
//   return redirected(AT_FDCWD, path, [&](const char* p) { return real_stat(p, status); });
//
// For nearly every path this is no more than the call itself.
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
  int error;  // != 0: the hook fails with this errno
  char path[PATH_MAX];

  bool is_device() const { return place == Place::kDevice || place == Place::kManager; }
  const char* for_the_kernel() const { return is_device() ? kPlaceholder : path; }
};

// False: the path is not redirected, and nothing is written. Async-signal-safe, also between vfork and exec.
// Leaves errno alone.
bool find_redirect(int folder, const char* path, Redirect* out);

// Is this open folder (or AT_FDCWD) the node's dev/infiniband, as a redirected opendir returns it?
bool is_device_folder(int folder);

// Is it one of the node's class folders, which list the devices?
bool is_class_folder(int folder);

// Removes the node's root from the start of `text`, so that a path from the kernel looks as if it were in the
// machine's /sys or /dev. Other text is not changed. Returns the new length.
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
