// SPDX-License-Identifier: BSD-2-Clause
//
// What the emulated device claims (ibv_query_device_ex(3), ibv_query_port(3)), in one place: the limits that
// creation and execution enforce are these.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "adapter/layout.h"
#include "engine/qp_attributes.h"
#include "fabric/device_table.h"

namespace verbena {

inline constexpr uint32_t kMaxMessage = 1u << 30;  // bytes
inline constexpr uint32_t kMaxWr = 32768;
inline constexpr uint32_t kMaxSge = 30;
inline constexpr uint32_t kMaxInline = 1024;  // bytes
inline constexpr uint32_t kMaxCqe = 4u << 20;
inline constexpr uint32_t kMaxRdAtomic = 16;
inline constexpr uint32_t kMaxQps = 16384;
inline constexpr uint32_t kMaxCqs = 16384;
inline constexpr uint32_t kMaxSrqs = 16384;
inline constexpr uint32_t kMaxMrs = kMaxMrsPerProcess / 2 - 1;
inline constexpr uint32_t kMaxMws = kMaxMrsPerProcess / 2;
inline constexpr uint64_t kMaxDeviceMemory = 256 * 1024;  // bytes
inline constexpr uint32_t kMaxPds = 1u << 20;

void describe_device(const DeviceDescription& device, ibv_device_attr_ex* attr);
void describe_port(const DeviceDescription& device, ibv_port_attr* attr);
AttributeLimits attribute_limits(const DeviceDescription& device);

}  // namespace verbena
