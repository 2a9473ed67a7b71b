// SPDX-License-Identifier: BSD-2-Clause
//
// UDP sockets and groups of IP multicast (ip(7), ipv6(7)).
#pragma once

#include "wire/net_address.h"

namespace verbena::wire {

// The socket joins `group` (IGMP, MLD) on the interface that has the address `at`, of the same IP version. 0;
// EADDRINUSE: it has joined there already; EADDRNOTAVAIL: no interface has the address; or another errno of
// setsockopt(2).
int join_ip_group(int fd, const NetAddress& at, const NetAddress& group);

// What the socket sends to groups leaves by the interface that has `from`, over at most `hops` routers less
// one. 0 or an errno.
int send_to_ip_groups_from(int fd, const NetAddress& from, int hops);

}  // namespace verbena::wire
