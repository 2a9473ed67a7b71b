// SPDX-License-Identifier: BSD-2-Clause
//
// What happens to devices and their ports at given times, while a program runs (`verbena run --faults`).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::tool {

struct ScheduledEvent {
  ibv_event_type type = IBV_EVENT_PORT_ERR;  // as of raise_device_event() (fabric/device_events.h)
  uint32_t device = 0;                       // index on the node
  uint32_t port = 1;
  uint64_t at_ns = 0;  // after the program has started
};

using Schedule = std::vector<ScheduledEvent>;

// Starts a process that raises the events on the node in the folder `node` as long as this process lives,
// whatever it executes. What was put down by the schedule, it puts up in the end. It is no child of this
// process, and holds none of its descriptors but standard error. Returns 0 or an errno; EINVAL: the node has
// no such device or port.
int start_schedule(const std::string& node, Schedule schedule);

}  // namespace verbena::tool
