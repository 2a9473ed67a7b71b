// SPDX-License-Identifier: BSD-2-Clause
//
// The node of this process. VERBENA_NODE is read once, by the first call, which may come before the library's
// constructor. A later change of the variable affects only the process's children.
#pragma once

#include <atomic>
#include <cstddef>

namespace verbena {

enum class NodeState : int { kUnknown = 0, kNone = 1, kPresent = 2 };

struct NodeRoot {
  const char* path;  // absolute, without a trailing slash; nullptr: no node, so the boundary does nothing
  size_t length;
};

namespace detail {
extern std::atomic<NodeState> node_state;
NodeState find_node();
}  // namespace detail

// Does the process have a node? One load in the common case. Async-signal-safe once the constructor has run.
inline bool has_node() {
  NodeState state = detail::node_state.load(std::memory_order_acquire);
  if (state == NodeState::kUnknown) state = detail::find_node();
  return state == NodeState::kPresent;
}

NodeRoot node_root();

// Are the machine's devices seen beside the node's (`verbena run --beside`)? Then what the node's tree does not have is
// the machine's.
bool is_beside_machine();

}  // namespace verbena
