// SPDX-License-Identifier: BSD-2-Clause
//
// The addresses of the machine: which it has, and when they change. The kernel notifies every process that
// asks (rtnetlink(7)). No privilege is needed, and no notification comes while nothing changes.
#pragma once

#include <array>
#include <cstdint>

namespace verbena::wire {

// True: the machine has this address now, given as in a GID, on an interface that is up. False for an IPv6
// address that the kernel still checks for duplicates. True if the kernel does not say.
bool machine_has(const std::array<uint8_t, 16>& bytes);

// A socket, non-blocking and close-on-exec, that becomes readable when an address or interface has changed.
// -1 and errno, for example where there is no netlink; changes then go unnoticed.
int watch_addresses();

// Reads all notifications, so that the socket is no longer readable.
void drain_address_watch(int fd);

}  // namespace verbena::wire
