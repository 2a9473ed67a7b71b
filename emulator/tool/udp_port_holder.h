// SPDX-License-Identifier: BSD-2-Clause
//
// Which process of this machine has a UDP port.
#pragma once

#include <cstdint>
#include <string>

#include "wire/net_address.h"

namespace verbena::tool {

enum class HolderKind : uint8_t {
  kUnknown,  // nobody, or it cannot be found out
  kKernel,   // a socket of the kernel itself: rxe
  kProcess,
};

struct PortHolder {
  HolderKind kind = HolderKind::kUnknown;
  int pid = 0;          // kProcess; 0: of another user, or in another pid namespace
  std::string program;  // as in /proc/PID/comm
};

// The holder of `port` at `address`, or at all addresses, in this network namespace (/proc/net/udp, udp6).
PortHolder find_udp_port_holder(const wire::NetAddress& address, uint16_t port);

}  // namespace verbena::tool
