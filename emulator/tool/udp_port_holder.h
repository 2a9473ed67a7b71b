// SPDX-License-Identifier: BSD-2-Clause
//
// Which process of this machine has a UDP port.
#pragma once

#include <cstdint>
#include <string>

#include "wire/net_address.h"

namespace verbena::tool {

struct PortHolder {
  bool at_all_addresses = false;  // the socket is bound to 0.0.0.0 or ::, as the kernel's own are, for rxe
  int pid = 0;          // 0: no process that this one may look at: another user's, or the kernel itself
  std::string program;  // as in /proc/PID/comm
};

// The holder of `port` at `address`, or at all addresses, in this network namespace (/proc/net/udp, udp6).
PortHolder find_udp_port_holder(const wire::NetAddress& address, uint16_t port);

}  // namespace verbena::tool
