// SPDX-License-Identifier: BSD-2-Clause
//
// Wakes the service thread of a process whose adapter this process has not mapped (else:
// PeerAdapter::kick()).
#pragma once

#include <cstdint>
#include <string>

namespace verbena {

class NodeDirectory;
struct SlotAddress;

// True: the process that holds `slot` as `generation` is alive and has been woken. `node`: the node's path.
// About a dozen system calls. Any thread, without a lock.
bool kick_slot(const NodeDirectory& directory, const std::string& node, uint32_t slot, uint32_t generation);

// Wakes the service thread at `owner` through its socket: for a process whose FIFO has been deleted.
void wake(const SlotAddress& owner);

}  // namespace verbena
