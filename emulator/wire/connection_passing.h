// SPDX-License-Identifier: BSD-2-Clause
//
// The process of the node that the kernel gives a connection to does the handshake. Then it passes the
// connection to the process that the peer asks for: one datagram to the unix socket `connections` in that
// process's slot folder, with the handshake so far and the connection itself (SCM_RIGHTS, unix(7)).
#pragma once

#include <string>

#include "wire/handshake.h"

namespace verbena::wire {

// Opens the socket in `folder`, non-blocking, close-on-exec. -1 and errno on failure.
int listen_for_passed_connections(const std::string& folder);

// 0; EAGAIN: too many connections are queued there (the process may be stopped); ENOENT, ECONNREFUSED: the
// process takes none; other errno. The descriptor stays the caller's.
int pass_connection(const std::string& folder, const Admitted& admitted, int connection);

// Takes one connection; the caller owns *connection. False: there is none. Datagrams from other users and
// malformed ones are dropped.
bool take_passed_connection(int listener, Admitted* admitted, int* connection);

}  // namespace verbena::wire
