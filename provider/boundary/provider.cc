// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/provider.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include <atomic>
#include <cstddef>

#include "boundary/claim.h"
#include "boundary/descriptors.h"
#include "boundary/environment.h"
#include "boundary/kernel.h"
#include "boundary/paths.h"

namespace verbena {
namespace {

constexpr char kProvider[] = "libverbena-provider.so";
constexpr char kTree[] = "/sys/class/infiniband_verbs";

// The path of the provider, which lies in the folder of this library (fabric/installation.h). False: the
// folder is unknown, or the path is too long.
bool provider_path(char* out, size_t capacity) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&provider_function), &self) == 0 || self.dli_fname == nullptr)
    return false;
  size_t length = 0;
  size_t folder = 0;
  for (; self.dli_fname[length] != 0; ++length) {
    if (length == capacity) return false;
    out[length] = self.dli_fname[length];
    if (out[length] == '/') folder = length + 1;
  }
  if (folder == 0 || folder + sizeof kProvider > capacity) return false;
  for (size_t i = 0; i < sizeof kProvider; ++i) out[folder + i] = kProvider[i];
  return true;
}

bool is_tree_missing(const NodeRoot& node) {
  char path[PATH_MAX + sizeof kTree];
  for (size_t i = 0; i < node.length; ++i) path[i] = node.path[i];
  for (size_t i = 0; i < sizeof kTree; ++i) path[node.length + i] = kTree[i];
  return kernel::exists(path) == -ENOENT;
}

}  // namespace

void* provider_function(const char* name) {
  if (!may_adopt()) return nullptr;
  char path[PATH_MAX];
  if (!provider_path(path, sizeof path)) return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

void refresh_counter(const char* path) {
  if (!is_counter(path)) return;
  const int before = errno;
  const auto refresh =
      reinterpret_cast<verbena_refresh_counter_fn>(provider_function(VERBENA_REFRESH_COUNTER));
  if (refresh != nullptr) refresh(path);
  errno = before;
}

bool restore_missing_tree() {
  static std::atomic<bool> asked{false};  // also ends the recursion when the provider itself calls a hook
  const NodeRoot node = node_root();
  if (node.path == nullptr || !is_tree_missing(node) || getenv("VERBENA_NODE_OPTIONS") == nullptr)
    return false;
  if (asked.exchange(true)) return false;
  const int before = errno;
  const auto restore = reinterpret_cast<verbena_restore_node_fn>(provider_function(VERBENA_RESTORE_NODE));
  const bool done = restore != nullptr && restore(node.path) == 0;
  if (done || restore == nullptr) asked.store(false);  // nullptr: in a vfork child
  errno = before;
  return done;
}

}  // namespace verbena
