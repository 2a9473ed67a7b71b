// SPDX-License-Identifier: BSD-2-Clause
//
// Address handles (ibv_create_ah(3)), and which device an address leads to.
#pragma once

#include <infiniband/verbs.h>

#include "engine/datagram/datagram_header.h"
#include "fabric/device_table.h"

namespace verbena {

struct Pd;

struct Ah {
  Pd* pd = nullptr;
  ibv_ah_attr attr{};
  DatagramHeader header;   // of its datagrams; kNone without a GRH
  bool multicast = false;  // the GID is a group's
};

// Does the (unicast) address lead to `device`? With a GRH by one of the device's GIDs, else by its LID.
bool leads_to(const ibv_ah_attr& address, const DeviceDescription& device);

}  // namespace verbena
