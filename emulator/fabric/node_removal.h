// SPDX-License-Identifier: BSD-2-Clause
//
// How a node goes. It is in use while a process is a member (node_membership.h) or holds it (node_holders.h).
// A node whose port somebody has put down (`verbena event`), or that is traced (`verbena trace --start`), is kept as well:
// it has something to remember.
//
// A node of another version, or one that cannot be read, is left alone for an hour after its last change.
//
// A node is removed in four steps, each of which leaves something that the next arrival continues with:
// 1. It is locked (node_lock.h) and judged unused.
// 2. It is retired: from now on nobody joins it, whatever happens to this process.
// 3. Its folder gets another name, beginning with '.': the name is free for a new node.
// 4. The folder is deleted.
#pragma once

#include <cstdint>
#include <string>

namespace verbena {

enum class Removal {
  kRemoved,
  kNoNode,
  kInUse,      // a process is a member, holds the node or is about to join it
  kRemembers,  // not in use, but a port is down, or what processes have done is recorded
  kFailed,     // not this user's folder; the folder of nodes stays locked for 100 ms; or an error of the file
               // system
};

struct RemovalOptions {
  uint64_t own = 0;                // the identity of a holder that does not count (process_identity.h)
  uint32_t own_slot = UINT32_MAX;  // that of a member that does not count
  bool with_ports = false;         // a node with a port that is down goes as well
  bool only_look = false;          // what would be done; nothing is
};

// Removes the node at `path` if it is not in use. Never waits for long.
Removal remove_node(const std::string& path, const RemovalOptions& options = {});

// Removes the nodes in `folder` that are not in use, and what a removal that did not end has left. Bounded
// work: looks at 256 names at most, and removes eight nodes at most.
void sweep_nodes(const std::string& folder);

// The name in `folder` of a node that is being made (".new") or that goes (".gone"): kind, this process's
// identity, and what no other name has.
std::string passing_name(const std::string& folder, const char* kind);

// Deletes the folder with all that is in it.
void delete_folder(const std::string& path);

}  // namespace verbena
