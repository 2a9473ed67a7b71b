// SPDX-License-Identifier: BSD-2-Clause
//
// The network addresses of a path, as an observer is told them. Pure functions.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "fabric/device_table.h"
#include "observe/observer.h"

namespace verbena {

// Of packets that `port` of `device` sends to `address`. Without a GRH, the GIDs at index 0 of the two ports;
// of a LID that no device has, zeros.
PacketRoute route_of(const ibv_ah_attr& address, uint32_t port, const DeviceDescription& device,
                     const DeviceTable& table);

// Of the packet whose network header this is, as a received datagram has it (engine/datagram/datagram_header.h).
PacketRoute route_in(std::span<const uint8_t, 40> header);

// Of packets in the other direction.
PacketRoute reversed(const PacketRoute& route);

}  // namespace verbena
