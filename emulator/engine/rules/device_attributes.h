// SPDX-License-Identifier: BSD-2-Clause
//
// What the emulated device reports (ibv_query_device_ex(3), ibv_query_port(3)). Creation and execution
// enforce these limits. The numbers come from the device's profile (fabric/device_limits.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "adapter/layout.h"
#include "engine/rules/qp_attributes.h"
#include "fabric/device_table.h"

namespace verbena {

void describe_device(const DeviceDescription& device, ibv_device_attr_ex* attr);
// `down`: IBV_PORT_DOWN instead of IBV_PORT_ACTIVE.
void describe_port(const DeviceDescription& device, uint32_t port, bool down, ibv_port_attr* attr);
// Are there alternate paths: on InfiniBand, between ports or path bits (IBV_DEVICE_AUTO_PATH_MIG)?
bool has_path_migration(const DeviceDescription& device);
// The limits of the device and its ports. The fields about the QP keep their defaults.
AttributeLimits attribute_limits(const DeviceDescription& device);

}  // namespace verbena
