// SPDX-License-Identifier: BSD-2-Clause
//
// Connections between two processes of one node that cannot reach each other's memory. One of the two makes a
// pair of unix streams, and passes one end to the service thread of the other process (fabric/control_rpc.h).
// From there on the connection is like one between nodes.
//
// It is always the same one, the lower by its name: two processes that want to send at the same moment have
// one connection, and none is dropped on which messages are under way. The other one asks it to connect.
//
// Datagrams need no connection: those of a process that ends before it is connected go alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fabric/descriptor.h"
#include "wire/established_connection.h"
#include "wire/process_id.h"

namespace verbena {

class NodeMembership;

// Does process `self` connect to process `id`, or ask it to connect?
inline bool connects_within_node(const wire::ProcessId& self, const wire::ProcessId& id) {
  return !(id < self);
}

// Connects to process `id` of the own node. 0 and the connection, or an errno. ENOENT, ECONNREFUSED: the
// process has ended.
int connect_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                        const wire::ProcessId& id, wire::EstablishedConnection* connection);

// Asks process `id` of the own node to connect to this one. 0 or an errno, as above.
int ask_within_node(const NodeMembership& membership, const wire::ProcessId& self, const wire::ProcessId& id);

// Passes `frames`, whole datagrams, to process `id` of the own node. What is longer than a socket of the
// kernel holds (some 200 KB) is lost. 0 or an errno, as above.
int pass_datagrams_within_node(const NodeMembership& membership, const wire::ProcessId& self,
                               const wire::ProcessId& id, std::span<const std::byte> frames);

// Is this message of the control RPC one of these three?
bool is_connection_request(const std::byte* message, size_t size);

// The process that asks to be connected to. None (ProcessId::somebody()): the message brings a connection, or
// it is not from a process of this node; a process that has ended meanwhile may have left messages.
wire::ProcessId asks_within_node(const wire::ProcessId& self, const std::byte* message);

// The frames that such a message passes, and the process that has sent them. None: it passes none, or is not
// from a process of this node. Their bytes are not checked.
std::vector<std::byte> datagrams_within_node(const wire::ProcessId& self, const std::byte* message,
                                             const Descriptor& passed, wire::ProcessId* from);

// Takes over the connection that such a message brings. False: it brings none, or is not from a process of
// this node.
bool accept_within_node(const wire::ProcessId& self, const std::byte* message, Descriptor& passed,
                        wire::EstablishedConnection* connection);

}  // namespace verbena
