// SPDX-License-Identifier: BSD-2-Clause
//
// The addresses and the port that a node listens at. All its processes listen there at once, with
// SO_REUSEPORT; so could processes of another node of the same user, and callers would end up on either.
// Hence an address and port are claimed by a node: a file <nodes folder>/ports/<network
// namespace>-<address>-<port> names the node that has them, for as long as somebody lives on it.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/device_table.h"
#include "wire/net_address.h"

namespace verbena::wire {

// A listening socket, non-blocking, close-on-exec. Of an address that the machine does not have now: callers
// come when it has. 0; EADDRINUSE: somebody else has the port; or what the kernel says.
int listen_at(const NetAddress& address, uint16_t port, int* fd);

// Could a process of this user listen there? `alone`: and nobody does, not even with SO_REUSEPORT. errno as
// listen_at, and EADDRNOTAVAIL: the machine has no such address; nobody listens afterwards. *problem in one
// line, with what to do.
int could_listen_at(const NetAddress& address, uint16_t port, bool alone, std::string* problem);

// Claims the address and port for the node with this path, whose folder is there. 0; EADDRINUSE: another node
// has it, and processes live there; ETIMEDOUT: another process has held the claim's lock for two seconds; or
// what the file system says. *problem in one line. Once a process lives on the node the claim is good until
// it ends.
int claim(const std::string& node, const NetAddress& address, uint16_t port, std::string* problem);

}  // namespace verbena::wire
