// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager and other nodes: the local listener for their requests, and the remote peer for
// ours.
#include "cm/id.h"
#include "cm/service.h"
#include "wire/connection_listener.h"

namespace verbena::cm {
namespace {

wire::NetAddress net_address(const Address& a) { return {gid_of(a)}; }

// wire::ConnectionListener::FindListener of all connection listeners of the process: the most specific
// listener, as for requests of this node.
}  // namespace

bool find_listening_slot(const NodeDirectory& directory, const std::string& node, const wire::NetAddress& to,
                         uint64_t service, uint32_t* slot) {
  IdTable table;
  if (table.open(directory, node, true) != 0) return false;
  const PortSpace space = space_of_service(service);
  Address destination = address_of(to.bytes);
  set_port(&destination, port_of_service(service));
  const Address ib = ib_address_of(to.bytes, service, 0xffff);
  IdRecord found;
  if (!table.find_listener(space, destination, kAnyDevice, &found) &&
      !table.find_listener(space, ib, kAnyDevice, &found))
    return false;
  *slot = found.owner.slot;
  return true;
}

[[maybe_unused]] static const bool registered =
    (wire::ConnectionListener::find_listeners_by(find_listening_slot), true);

Peer Service::remote_receiver_of(uint64_t service, const Address& source, const Address& destination) {
  if (roce() != nullptr) return peer_at(gid_of(destination));
  return links_.connect(net_address(destination), net_address(source), service);
}

void Service::nobody_there(const Peer& peer, std::span<const uint8_t> frame) {
  Message message;
  if (decode(frame, &message)) connections_.nobody_answers_for(peer, message);
}

void Service::ConnectionEvents::arrived(const wire::EstablishedConnection& arrived) {
  Guard guard(service);
  service.links_.arrived(arrived);
}

void Service::ConnectionEvents::failed(uint64_t request_id, wire::Refusal refusal) {
  Guard guard(service);
  service.links_.failed(request_id, refusal);
}

}  // namespace verbena::cm
