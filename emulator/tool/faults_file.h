// SPDX-License-Identifier: BSD-2-Clause
//
// The file of `verbena run --faults`, in TOML:
//
//   seed = 7                        # of the draws; 0 if it is not given
//   link = "25Gbps,2us"             # as --link
//   [[fault]]
//   # lose, lose_ack, delay, shuffle, rnr, fail, die, refuse, hold, late, wake
//   what = "lose"
//   qp = 0                          # index of the QP in its process, from 0; hold, late, wake: cq = 0
//   opcode = "RDMA_WRITE"           # SEND, SEND_WITH_IMM, RDMA_READ, ...
//   nth = 100                       # or every = 10
//   probability = 0.01
//   times = 3
//   from = "10ms"                   # since the process opened the device
//   until = "2s"
//   time = "100us"                  # delay, hold, late; ["10us", "1ms"]: drawn evenly
//   error = "rkey_out_of_range"     # fail: a code of verbena explain
//   object = "MR"                   # refuse: QP, CQ, MR, MW, PD, AH, SRQ, XRCD
//
// Or what happens to a device:
//
//   [[fault]]
//   what = "port_down"              # or gid_change, address_change, device_fatal
//   device = 0                      # index on the node
//   port = 1
//   from = "1s"                     # since the program started
//   time = "200ms"                  # port_down: then it comes up again
#pragma once

#include <string>

#include "faults/plan.h"
#include "tool/schedule.h"

namespace verbena::tool {

// What happens to devices goes to *schedule, all else to *out. false: *problem names the file, the line and
// the rule.
bool read_faults(const std::string& file, faults::Plan* out, Schedule* schedule, std::string* problem);

// "25Gbps,2us", "2us", "100Mbps". false: it is none of these.
bool parse_link(const std::string& text, faults::Link* out);

// "100ns", "10us", "1.5ms", "2s".
bool parse_duration(const std::string& text, uint64_t* nanoseconds);

}  // namespace verbena::tool
