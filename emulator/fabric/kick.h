// SPDX-License-Identifier: BSD-2-Clause
//
// Waking the service thread of a process whose adapter this one need not know (else PeerAdapter::kick()).
#pragma once

#include <cstdint>
#include <string>

namespace verbena {

class NodeDirectory;

// True: the process that holds `slot` as `generation` lives, and has been woken. `node`: the node's path. Two
// or three system calls; any thread, without a lock.
bool kick_slot(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t generation);

}  // namespace verbena
