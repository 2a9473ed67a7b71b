// SPDX-License-Identifier: BSD-2-Clause
//
// What the emulated device claims (ibv_query_device_ex(3), ibv_query_port(3)), in one place: the limits that
// creation and execution enforce are these. The numbers come from the device's profile
// (fabric/device_limits.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "adapter/layout.h"
#include "engine/rules/qp_attributes.h"
#include "fabric/device_table.h"

namespace verbena {

void describe_device(const DeviceDescription& device, ibv_device_attr_ex* attr);
void describe_port(const DeviceDescription& device, bool down, ibv_port_attr* attr);
AttributeLimits attribute_limits(const DeviceDescription& device);

}  // namespace verbena
