// SPDX-License-Identifier: BSD-2-Clause
//
// The objects that a device limits in number, over all processes of the node (engine/device/quota.h).
#pragma once

#include <cstdint>

namespace verbena {

enum class Counted : uint32_t {
  kQps,
  kCqs,
  kMrs,
  kMws,
  kPds,
  kAhs,
  kSrqs,
  kXrcds,
  kResponderResources,  // max_dest_rd_atomic of each QP that is connected
  kDeviceMemory,        // bytes
  kKinds
};

}  // namespace verbena
