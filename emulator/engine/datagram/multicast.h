// SPDX-License-Identifier: BSD-2-Clause
//
// The QPN of multicast messages, and the limits of the device for multicast (ibv_query_device(3)). The groups
// are in fabric/multicast_table.h.
#pragma once

#include "fabric/device_table.h"
#include "fabric/multicast_table.h"

namespace verbena {

struct Qp;

inline constexpr uint32_t kMulticastQpn = 0xffffff;  // IBA vol. 1, 3.5.10

// Is the QP attached to a group? Then it cannot be destroyed (ibv_create_qp(3)).
bool attached_to_group(const Qp& qp);

}  // namespace verbena
