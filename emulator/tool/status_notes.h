// SPDX-License-Identifier: BSD-2-Clause
//
// What `verbena status` concludes from a snapshot: why a program may hang, and how its queue pairs failed.
#pragma once

#include <cstdint>
#include <string>

#include "survey/snapshot.h"

namespace verbena::tool {

// Seconds from `then` (ns, CLOCK_REALTIME) to the snapshot; 0: not before it.
double seconds_since(const NodeSnapshot& node, uint64_t then);

// "2026-11-24T21:03:11Z"
std::string time_text(uint64_t nanoseconds);

// "REM_ACCESS_ERR", as in enum ibv_wc_status without IBV_WC_.
std::string status_word(uint32_t status);

// Why no message comes to a queue pair that has receive requests and has never had a message: what its peer
// does instead. "": messages have come, there is no receive request, or it is too early to say.
std::string unmatched_receives(const NodeSnapshot& node, const QpSnapshot& qp);

// The last error of a queue pair that has one, in one line.
std::string error_text(const NodeSnapshot& node, const QpSnapshot& qp);

// One line each, without indent: the last error of each queue pair, sends that wait for a receive request,
// receive requests that no message comes for, and CQs whose waiter would sleep on.
std::string notes_as_text(const NodeSnapshot& node, const ProcessSnapshot& process);

}  // namespace verbena::tool
