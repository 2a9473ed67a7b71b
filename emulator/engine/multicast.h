// SPDX-License-Identifier: BSD-2-Clause
//
// What the device allows of multicast (ibv_query_device(3)); the groups themselves are in
// fabric/multicast_table.h.
#pragma once

#include "fabric/device_table.h"
#include "fabric/multicast_table.h"

namespace verbena {

struct Qp;

inline constexpr MulticastLimits kMulticastLimits{.groups = 512, .members_of_group = 240, .members = 512};
// Every device of a node can have its full number.
static_assert(kMulticastLimits.members * kMaxDevices <= kMulticastEntries);

// Is the QP attached to a group? Then it cannot be destroyed (ibv_create_qp(3)).
bool attached_to_group(const Qp& qp);

}  // namespace verbena
