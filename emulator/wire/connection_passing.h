// SPDX-License-Identifier: BSD-2-Clause
//
// A caller is let in by whichever process of the node the kernel gave the connection to, and handed on to the
// one he asks for: one datagram to the unix socket `callers` in its slot folder, with what was said so far
// and the connection itself (SCM_RIGHTS, unix(7)).
#pragma once

#include <string>

#include "wire/handshake.h"

namespace verbena::wire {

// The socket in `folder`, non-blocking, close-on-exec; -1 and errno.
int listen_for_passed_connections(const std::string& folder);

// 0; EAGAIN: too many wait there already (it is stopped?); ENOENT, ECONNREFUSED: it takes none; other errno.
// The descriptor stays the caller's own.
int pass_connection(const std::string& folder, const Admitted& admitted, int connection);

// Takes one. False: there is none. Who is not of this user, or sends anything else, is passed over.
// *connection is now the receiver's.
bool take_passed_connection(int listener, Admitted* admitted, int* connection);

}  // namespace verbena::wire
