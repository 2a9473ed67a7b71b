// SPDX-License-Identifier: BSD-2-Clause
//
// The addresses and the port that a node listens at. All its processes listen there at once, with
// SO_REUSEPORT. Processes of another node of the same user could do so, too, and connections would reach
// either node. A node therefore claims an address and port: a file <nodes folder>/ports/<network
// namespace>-<address>-<port> names the node that has them, while a process is a member of it.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/device_table.h"
#include "wire/net_address.h"

namespace verbena::wire {

// Opens a listening socket, non-blocking, close-on-exec. The address may be one that the machine does not
// have now; connections come once it has. 0; EADDRINUSE: another program has the port; or an error of the
// kernel.
int listen_at(const NetAddress& address, uint16_t port, int* fd);

// Checks whether a process of this user could listen there; no socket stays open. `alone`: and no other
// process listens, not even with SO_REUSEPORT. errno as listen_at(), and EADDRNOTAVAIL: the machine has no
// such address. *problem says in one line what to do.
int could_listen_at(const NetAddress& address, uint16_t port, bool alone, std::string* problem);

// Claims the address and port for the node with this path, whose folder exists. Once a process is a member of
// the node, the claim holds until the last member ends. 0, or an errno and *problem in one line:
// - EADDRINUSE: another node with members has claimed them.
// - ETIMEDOUT: another process has held the claim's lock for two seconds.
// - Other errno: an error of the file system.
int claim(const std::string& node, const NetAddress& address, uint16_t port, std::string* problem);

}  // namespace verbena::wire
