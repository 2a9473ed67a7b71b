// SPDX-License-Identifier: BSD-2-Clause
//
// The multicast limits of a device (ibv_query_device(3)).
#pragma once

#include "fabric/device_limits.h"
#include "fabric/multicast_table.h"

namespace verbena {

inline MulticastLimits multicast_limits(const DeviceLimits& limits) {
  return {.groups = static_cast<uint32_t>(limits.max_mcast_grp),
          .members_of_group = static_cast<uint32_t>(limits.max_mcast_qp_attach),
          .members = static_cast<uint32_t>(limits.max_total_mcast_qp_attach)};
}

}  // namespace verbena
