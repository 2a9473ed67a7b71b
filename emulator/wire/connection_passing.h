// SPDX-License-Identifier: BSD-2-Clause
//
// The process of the node that the kernel gives a connection to does the handshake. Then it passes the
// connection to the process that the peer asks for: one message to a service of that process
// (fabric/service_socket.h), with the handshake so far and the connection itself (SCM_RIGHTS, unix(7)).
#pragma once

#include <string>

#include "fabric/service_inbox.h"
#include "wire/handshake.h"

namespace verbena::wire {

// 0; EAGAIN: too many connections are queued there (the process may be stopped); ENOENT, ECONNREFUSED: the
// process takes none; other errno. The descriptor stays the caller's.
int pass_connection(const SlotAddress& process, const Admitted& admitted, int connection);

// Takes one connection out of the inbox of ServiceNumber::kPassedConnection; the caller owns *connection.
// False: there is none. Malformed messages are dropped.
bool take_passed_connection(ServiceInbox& inbox, Admitted* admitted, int* connection);

}  // namespace verbena::wire
