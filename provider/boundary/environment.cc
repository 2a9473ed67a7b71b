// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/environment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "boundary/kernel.h"

namespace verbena {
namespace {

// A copy, because some programs overwrite the environment with their title.
char root_path[PATH_MAX];
std::atomic<size_t> root_length;
std::atomic<bool> is_beside;

// "beside=" among the options of the node (wire/node_recipe.h).
bool says_beside(const char* options) {
  return options != nullptr && strstr(options, " beside=") != nullptr;
}

void say_whose(const char* path, unsigned owner, unsigned user) {
  const char* level = getenv("VERBENA_LOG");
  if (level != nullptr && strcmp(level, "none") == 0) return;
  char line[PATH_MAX + 128];
  const int length =
      snprintf(line, sizeof line,
               "verbena[%d] error: VERBENA_NODE is not used: %s is not a folder of uid %u (owner: uid %u)\n",
               kernel::process_id(), path, user, owner);
  kernel::ask(SYS_write, STDERR_FILENO, line, static_cast<size_t>(length));
}

// May this process use the node at `path`?
// - Not if the node belongs to another user, or the process runs with another user's rights (set-user-ID,
//   capabilities). Otherwise another user would choose what the process reads and writes.
// - Yes if the node does not exist any more: it still hides the machine's devices.
bool may_use(const char* path) {
  if (getauxval(AT_SECURE) != 0) return false;
  struct stat status {};
  if (kernel::link_status(path, &status) != 0) return true;
  const unsigned user = kernel::effective_user();
  if (S_ISDIR(status.st_mode) && status.st_uid == user) return true;
  say_whose(path, status.st_uid, user);
  return false;
}

}  // namespace

namespace detail {

constinit std::atomic<NodeState> node_state{NodeState::kUnknown};

// Two threads may run this at the same time. Both write the same bytes.
NodeState find_node() {
  const char* value = getenv("VERBENA_NODE");
  size_t length = 0;
  if (value != nullptr && value[0] == '/') {
    while (value[length] != 0 && length < sizeof root_path) ++length;
    if (length == sizeof root_path) length = 0;
    for (size_t i = 0; i < length; ++i) __atomic_store_n(&root_path[i], value[i], __ATOMIC_RELAXED);
    while (length > 0 && value[length - 1] == '/') --length;
    __atomic_store_n(&root_path[length], '\0', __ATOMIC_RELAXED);
    if (length > 0 && !may_use(root_path)) length = 0;
  }
  root_length.store(length, std::memory_order_relaxed);
  is_beside.store(says_beside(getenv("VERBENA_NODE_OPTIONS")), std::memory_order_relaxed);
  const NodeState state = length > 0 ? NodeState::kPresent : NodeState::kNone;
  node_state.store(state, std::memory_order_release);
  return state;
}

}  // namespace detail

bool is_beside_machine() { return has_node() && is_beside.load(std::memory_order_relaxed); }

NodeRoot node_root() {
  if (!has_node()) return {nullptr, 0};
  return {root_path, root_length.load(std::memory_order_relaxed)};
}

}  // namespace verbena
