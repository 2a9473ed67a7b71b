// SPDX-License-Identifier: BSD-2-Clause
//
// Listeners and the requests that arrive at them (cma.c: rdma_listen, cma_req_handler, cma_new_conn_id,
// cma_new_udp_id).
#include <errno.h>

#include <cstring>
#include <utility>

#include "cm/cma_header.h"
#include "cm/event_data.h"
#include "cm/id.h"
#include "cm/id_operations.h"
#include "observe/log.h"

namespace verbena::cm {

using enum Field;

int listen(Id* id, int backlog) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->stage == Stage::kIdle)
      if (int error = bind_locked(*id, Address::of(sockaddr_in{})); error != 0) return error;
    if (id->stage != Stage::kAddressBound) return EINVAL;
    IdFacts facts = id->facts();
    const auto length = static_cast<uint32_t>(backlog > 0 ? backlog : 0);
    if (int error = id->service.table().listen(id->handle, &facts, length); error != 0) return error;
    id->flags = facts.flags;
    id->backlog = length;
    id->stage = Stage::kListen;
    id->publish();
    return 0;
  });
}

Peer Service::receiver_of(PortSpace space, const Address& destination, uint32_t device) const {
  IdRecord found;
  if (table_.find_listener(space, destination, device, &found))
    return {found.owner.slot, found.owner.generation};
  // A process may have the port and listen on another address: that process refuses the request.
  Peer somebody = self();
  const uint16_t port = port_of(destination);
  table_.for_each_id([&](const IdRecord& record) {
    if (record.facts.state != IdState::kListening || port_of(record.facts.local) != port) return;
    if (space_of_service(service_id(record.facts.space, record.facts.local)) == space)
      somebody = {record.owner.slot, record.owner.generation};
  });
  return somebody;
}

namespace {

struct ConnectionRequest {
  Address source, destination;
  Place place;  // where the request arrived
  Id* listener = nullptr;
};

Id* listener_for(const Service& service, PortSpace space, const Address& destination, uint32_t device) {
  IdRecord found;
  if (!service.table().find_listener(space, destination, device, &found)) return nullptr;
  if (Peer{found.owner.slot, found.owner.generation} != service.self()) return nullptr;
  Id* listener = service.find(found.facts.number);
  return listener != nullptr && listener->stage == Stage::kListen ? listener : nullptr;
}

bool has_listener_on(const Service& service, uint64_t sid) {
  for (const auto& [number, id] : service.ids())
    if (id->stage == Stage::kListen && service_id(id->space, id->source) == sid) return true;
  return false;
}

// cma_id_from_event. IP addresses: from the private data. AF_IB: from GID and service ID.
bool understand(const Service& service, const Message& m, ConnectionRequest* out) {
  const uint64_t sid = m[kServiceId];
  const PortSpace space = space_of_service(sid);
  if (!find_gid(service.devices(), m.destination, kAnyDevice, &out->place)) return false;
  if (read_cma_header(std::span(m.private_data).first<kCmaHeaderSize>(), port_of_service(sid), &out->source,
                      &out->destination))
    out->listener = listener_for(service, space, out->destination, out->place.device);
  if (out->listener != nullptr && out->listener->source.family() != kFamilyIb) return true;
  const auto pkey = static_cast<uint16_t>(m[kPkey]);
  out->destination = ib_address_of(m.destination, sid, pkey);
  out->source = ib_address_of(m.source, 0, pkey);
  out->listener = listener_for(service, space, out->destination, out->place.device);
  // A listener on IP addresses cannot identify the requester.
  return out->listener != nullptr && out->listener->source.family() == kFamilyIb;
}

// cma_check_req_qp_type.
bool fits(const Id& listener, const Connection& connection) {
  return listener.qp_type == 0 || listener.qp_type == connection.facts().qp_type;
}

Event event_of(Id& id, const Id& listener, const Message& m) {
  Event event = id.new_event(EventType::kConnectRequest);
  const std::span data =
      std::span(m.private_data).first(private_data_size(m.kind)).subspan(listener.header_size());
  if (id.is_datagram()) {
    put_private_data(data, &event.datagram.private_data);
    return event;
  }
  ConnectionParameters& c = event.connection;
  put_private_data(data, &c.private_data);
  c.qp_number = static_cast<uint32_t>(m[kQpn]);
  c.responder_resources = static_cast<uint8_t>(m[kInitiatorDepth]);
  c.initiator_depth = static_cast<uint8_t>(m[kResponderResources]);
  c.flow_control = static_cast<uint8_t>(m[kFlowControl]);
  c.retry_count = static_cast<uint8_t>(m[kRetryCount]);
  c.rnr_retry_count = static_cast<uint8_t>(m[kRnrRetryCount]);
  c.srq = m[kSrq] != 0;
  event.ece = ece_of(m);
  return event;
}

}  // namespace

Arrival Service::arrived(std::unique_ptr<Connection>& connection, const Message& m) {
  ConnectionRequest request;
  if (!understand(*this, m, &request)) {
    const bool other_address = has_listener_on(*this, m[kServiceId]);
    VERBENA_INFO("rdma_cm: a request for service 0x%llx from %s is refused: %s",
                 static_cast<unsigned long long>(m[kServiceId]), to_text(request.source).c_str(),
                 other_address ? "its listener is bound to another address" : "nobody listens");
    return other_address ? Arrival::kRefused : Arrival::kNobodyListens;
  }
  Id& listener = *request.listener;
  if (!fits(listener, *connection)) {
    VERBENA_WARN(cm_qp_type, "rdma_listen: a request for a QP of type %d at a listener of type %d is refused",
                 static_cast<int>(connection->facts().qp_type), static_cast<int>(listener.qp_type));
    return Arrival::kRefused;
  }
  auto id = std::make_unique<Id>(*this, listener.space, connection->facts().qp_type, listener.handler,
                                 listener.context);
  add(id.get());
  id->stage = Stage::kConnect;
  id->source = request.destination;
  id->destination = request.source;
  if (listener.has_device) find_gid(devices(), m.destination, listener.place.device, &request.place);
  id->stand_on(request.place);
  id->reaches_node = find_gid(devices(), m.source, kAnyDevice, &id->far);
  id->service_type = listener.service_type;
  if (!id->is_datagram()) {
    id->paths[0] = connection->facts().path;
    id->path_count = 1;
  }
  if (table_.add({self().slot, self().generation}, id->facts(), &id->handle) != 0) {
    remove(id.get());
    return Arrival::kRefused;
  }
  connection->set_owner(id.get());
  id->connection = std::move(connection);
  id->publish();
  Event event = event_of(*id, listener, m);
  event.listener = &listener;
  id->raise(event);
  id.release();
  return Arrival::kTaken;
}

}  // namespace verbena::cm
