// SPDX-License-Identifier: BSD-2-Clause
//
// What flow rules look at in an Ethernet frame, and the comparison. Pure functions.
//
// A rule is a pair of FlowFields, values and mask. A frame matches if its fields, masked, are the values.
// What a specification implies beyond its fields is in the mask as well: the version of IP, the protocol
// above it, and that the frame has a VLAN tag (drivers/infiniband/hw/mlx5/fs.c, parse_flow_attr()).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fabric/flow_table.h"

namespace verbena {

inline constexpr uint32_t kEthernetHeader = 14;
inline constexpr uint32_t kVlanTag = 4;

// The fields of a frame that begins with the destination's address. A frame that ends within a header has the
// fields of the headers before.
FlowFields fields_of_frame(const uint8_t* frame, uint32_t length) noexcept;

// `values` has no bit outside `mask`.
inline bool matches(const FlowFields& frame, const FlowFields& values, const FlowFields& mask) noexcept {
  using Words = std::array<uint64_t, sizeof(FlowFields) / sizeof(uint64_t)>;
  const auto seen = std::bit_cast<Words>(frame), wanted = std::bit_cast<Words>(values),
             masked = std::bit_cast<Words>(mask);
  for (size_t i = 0; i < seen.size(); ++i)
    if ((seen[i] & masked[i]) != wanted[i]) return false;
  return true;
}

}  // namespace verbena
