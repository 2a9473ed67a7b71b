// SPDX-License-Identifier: BSD-2-Clause
//
// Completion events that did not reach the pipe of their channel, because it was full. SharedCq::lost counts them; the owner
// of the CQ writes them later.
#pragma once

#include <cstdint>

namespace verbena {

class Process;

// Writes them. Any thread. False: some pipe is still full.
bool reinject_lost_events(Process& process);

// An event of the CQ with this handle is to be written later.
void owe_event(Process& process, uint64_t user_handle);

}  // namespace verbena
