// SPDX-License-Identifier: BSD-2-Clause
//
// Which port of a device an address leads to. Pure.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/device_table.h"

namespace verbena {

// The port of `device` that the (unicast) address leads to: with a GRH by one of the port's GIDs, else by one
// of its LIDs. 0: to none.
uint8_t find_port(const ibv_ah_attr& address, const DeviceDescription& device);

}  // namespace verbena
