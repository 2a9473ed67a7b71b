// SPDX-License-Identifier: BSD-2-Clause
//
// May packets leave as one datagram that the kernel divides (udp(7), UDP_SEGMENT)? The ICRC of IPv4 covers
// the identification, so it has to be known for each packet. A datagram with identification 0 that the kernel
// divides gets 0, 1, 2 ... (inet_gso_segment(), net/ipv4/af_inet.c). An adapter that divides it by itself may
// number otherwise, so there only IPv6 is divided, which has no identification.
#pragma once

#include "wire/net_address.h"

namespace verbena::udp {

// `fd`: an open UDP socket at `address`, which is of this machine.
bool may_segment(int fd, const wire::NetAddress& address);

}  // namespace verbena::udp
