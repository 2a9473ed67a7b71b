// SPDX-License-Identifier: BSD-2-Clause
//
// The addresses and the port that a node listens at. All its processes listen there at once, with
// SO_REUSEPORT. port_claim.h keeps processes of other nodes out.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace verbena::wire
