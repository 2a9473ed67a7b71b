// SPDX-License-Identifier: BSD-2-Clause
//
// What the IP header of a packet says besides its addresses. The ICRC does not cover it.
#pragma once

#include <cstdint>

namespace verbena::udp {

// RFC 3168: a sender that lowers its rate when packets are marked says ECT(0), and a switch marks with CE.
inline constexpr uint8_t kEcnMask = 3, kEcnCapable = 2, kCongestionExperienced = 3;

struct IpFields {
  uint8_t traffic_class = 0;  // DSCP and ECN; IPv4: type of service
  uint8_t hop_limit = 0;      // IPv4: time to live. To be sent, 0: the route's, and 64 to groups
  uint32_t flow_label = 0;    // IPv6, 20 bits. To be sent, 0: the kernel's choice

  bool is_congested() const { return (traffic_class & kEcnMask) == kCongestionExperienced; }
  bool operator==(const IpFields&) const = default;
};

}  // namespace verbena::udp
