// SPDX-License-Identifier: BSD-2-Clause
//
// The addresses of the machine: which it has, and when to look again. The kernel tells every process that
// asks (rtnetlink(7)); no rights are needed, and nothing comes while nothing changes.
#pragma once

#include <array>
#include <cstdint>

namespace verbena::wire {

// Does the machine have this address now, as in a GID, on an interface that is up? Of an IPv6 address that it
// still looks for a double of: no. When the kernel does not say: yes.
bool machine_has(const std::array<uint8_t, 16>& bytes);

// A socket, non-blocking and close-on-exec, that is readable after an address or interface has changed. -1:
// errno, as where there is no netlink; then changes go unnoticed.
int watch_addresses();

// Reads what there is to read, so that the socket sleeps again.
void drain_address_watch(int fd);

}  // namespace verbena::wire
