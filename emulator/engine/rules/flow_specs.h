// SPDX-License-Identifier: BSD-2-Clause
//
// From the attributes of ibv_create_flow(3) to a rule of the node's table. Pure.
//
// The checks are those of the kernel (drivers/infiniband/core/uverbs_cmd.c, ib_uverbs_ex_create_flow() and
// kern_spec_to_ib_spec_filter()) and of mlx5 (drivers/infiniband/hw/mlx5/fs.c, parse_flow_attr() and
// mlx5_ib_create_flow()):
// - ETH, IPV4, IPV4_EXT, IPV6, TCP and UDP are matched, with any mask. Two specifications of one layer, or of
// layers
//   that no frame has together, are EINVAL.
// - num_of_specs says how many there are. The size of the whole is not read, as by libibverbs for other
// providers
//   (libibverbs/cmd.c, ibv_cmd_create_flow()); pyverbs gives that of the structure alone. That of each
//   specification must be that of its type.
// - ACTION_DROP and ACTION_COUNT are carried out. What real adapters have beyond this (tunnels, MPLS, GRE,
// ESP, tags,
//   action handles, EGRESS) is EOPNOTSUPP.
// - A mask of IPv4's flags is EOPNOTSUPP, as on mlx5.
// - The default rules and the sniffer have no specifications, and only normal rules may have DONT_TRAP.
#pragma once

#include <infiniband/verbs.h>

#include "fabric/flow_table.h"

namespace verbena {

struct ParsedFlow {
  FlowRule rule;                     // without device and queue pair
  ibv_counters* counters = nullptr;  // of ACTION_COUNT
};

// 0, EINVAL or EOPNOTSUPP; *why is then the reason, for the log. `ports`: of the device.
int parse_flow(const ibv_flow_attr& attr, uint32_t ports, ParsedFlow* out, const char** why) noexcept;

}  // namespace verbena
