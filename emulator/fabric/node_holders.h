// SPDX-License-Identifier: BSD-2-Clause
//
// Holders of a node: living processes for which it stays although no process is a member, such as a shell
// under `verbena run` whose programs come and go. A table in the node directory has their identities. A
// holder that ends needs no clearing: its entry counts no more.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace verbena {

class NodeDirectory;

// Adds the process. Added already, or the table is full of living processes: nothing happens. The caller
// holds the node's lock (NodeLock), shared or exclusive.
void add_holder(const NodeDirectory& directory, pid_t pid);

// The number of living holders other than the process with identity `except` (0: none).
uint32_t count_holders(const NodeDirectory& directory, uint64_t except = 0);

}  // namespace verbena
