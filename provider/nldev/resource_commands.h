// SPDX-License-Identifier: BSD-2-Clause
//
// The objects of the node's processes: `rdma resource`. Each entry has the process that made it
// (RDMA_NLDEV_ATTR_RES_PID). A process that does not answer (stopped, in a debugger) is left out.
#pragma once

#include "nldev/commands.h"

namespace verbena::nldev {

int get_summary(const Request& request, Writer* out);
int dump_summaries(const Request& request, Dump* out);

// One object, by its number, and all of a device.
enum class Kind { kQp, kCmId, kCq, kMr, kPd, kContext, kSrq };
template <Kind kind>
int get_object(const Request& request, Writer* out);
template <Kind kind>
int dump_objects(const Request& request, Dump* out);

// The memory regions of a device alone, for STAT_GET: there are no counters of regions.
int get_region_statistics(const Request& request, Writer* out);
int dump_region_statistics(const Request& request, Dump* out);

}  // namespace verbena::nldev
