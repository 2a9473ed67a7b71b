// SPDX-License-Identifier: BSD-2-Clause
//
// Connections between two processes of one node that cannot reach each other's memory. The process that has
// something to send makes a pair of unix streams. It passes one end to the service thread of the other
// process (fabric/control_rpc.h). From there on the connection is like one between nodes.
#pragma once

#include <cstddef>

#include "fabric/descriptor.h"
#include "wire/established_connection.h"
#include "wire/process_id.h"

namespace verbena {

class NodeMembership;

// Connects to process `id` of the own node. 0 and the connection, or an errno. ENOENT, ECONNREFUSED: the
// process has ended.
int connect_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                        const wire::ProcessId& id, wire::EstablishedConnection* connection);

// Is this message of the control RPC a request for such a connection?
bool is_connection_request(const std::byte* message, size_t size);

// Takes over the connection that such a message brings. False: it is not from a process of this node; a
// process that has ended meanwhile may have left messages.
bool accept_within_node(const wire::ProcessId& self, const std::byte* message, Descriptor& passed,
                        wire::EstablishedConnection* connection);

}  // namespace verbena
