// SPDX-License-Identifier: BSD-2-Clause
//
// `rdma statistic`: the counters of a port. Queue pairs are bound to no counters, as on a device that does
// not support that (rdma_counter_bind_qp_auto).
#pragma once

#include "nldev/commands.h"

namespace verbena::nldev {

int get_statistics(const Request& request, Writer* out);
int dump_statistics(const Request& request, Dump* out);

// Which counters there are.
int get_counter_status(const Request& request, Writer* out);

}  // namespace verbena::nldev
