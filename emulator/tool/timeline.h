// SPDX-License-Identifier: BSD-2-Clause
//
// What the processes of a node have done, in the order of time: as text, and as the JSON that Perfetto and
// Chrome's about:tracing open ("Trace Event Format").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record/record.h"
#include "record/record_ring.h"

namespace verbena::tool {

struct TimelineProcess {
  int32_t pid = 0;
  std::string program;
};

struct TimelineEvent {
  uint32_t process = 0;  // place in Timeline::processes
  record::TimelineRecord record;
};

struct Timeline {
  std::vector<TimelineProcess> processes;
  std::vector<TimelineEvent> events;  // by time
  int64_t to_wall_clock = 0;          // ns, to add to their times: CLOCK_REALTIME
  uint64_t lost = 0;                  // records that were overwritten
};

std::string timeline_as_text(const Timeline& timeline);
std::string timeline_as_json(const Timeline& timeline);

// "SEND", "RDMA_READ"; of enum ibv_wr_opcode
const char* operation_name(uint8_t opcode);
// "post SEND, 64 bytes, wr_id 0x1"
std::string step_text(const record::TimelineRecord& record);

}  // namespace verbena::tool
