// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/environment.h"

#include <limits.h>
#include <stdlib.h>

namespace verbena {
namespace {

// A copy, because some programs overwrite the environment with their title.
char root_path[PATH_MAX];
std::atomic<size_t> root_length;

}  // namespace

namespace detail {

constinit std::atomic<NodeState> node_state{NodeState::kUnknown};

// Two threads may run this at once. Both write the same bytes.
NodeState find_node() {
  const char* value = getenv("VERBENA_NODE");
  size_t length = 0;
  if (value != nullptr && value[0] == '/') {
    while (value[length] != 0 && length < sizeof root_path) ++length;
    if (length == sizeof root_path) length = 0;
    for (size_t i = 0; i < length; ++i) __atomic_store_n(&root_path[i], value[i], __ATOMIC_RELAXED);
    while (length > 0 && value[length - 1] == '/') --length;
  }
  root_length.store(length, std::memory_order_relaxed);
  const NodeState state = length > 0 ? NodeState::kPresent : NodeState::kNone;
  node_state.store(state, std::memory_order_release);
  return state;
}

}  // namespace detail

NodeRoot node_root() {
  if (!has_node()) return {nullptr, 0};
  return {root_path, root_length.load(std::memory_order_relaxed)};
}

}  // namespace verbena
