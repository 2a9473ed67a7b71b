// SPDX-License-Identifier: BSD-2-Clause
//
// Completion events that were not written to the pipe of their channel: it was full, or the producer could
// not open it. SharedCq::lost counts them; the owner of the CQ writes them later.
#pragma once

#include <cstdint>

namespace verbena {

class Process;

// Writes the lost events of all CQs. Any thread. False: some pipe is still full.
bool reinject_lost_events(Process& process);

// Counts one lost event of the CQ with this handle.
void owe_event(Process& process, uint64_t user_handle);

}  // namespace verbena
