// SPDX-License-Identifier: BSD-2-Clause
//
// Connections as programs use them (cma.c: rdma_connect, rdma_accept, rdma_reject, rdma_disconnect,
// rdma_notify).
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "cm/cma_header.h"
#include "cm/id.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

constexpr uint8_t kAckDelay = 0;  // ibv_device_attr::local_ca_ack_delay (engine/rules/device_attributes.cc)

std::span<const uint8_t> data_of(const PrivateData& data) { return {data.bytes, data.length}; }
uint8_t at_most_7(uint8_t count) { return std::min<uint8_t>(count, 7); }

// The private data of a request: the CMA header, then the program's data.
struct RequestData {
  std::array<uint8_t, kCmaHeaderSize + kMaxPrivateData> bytes;
  size_t size;

  RequestData(const Id& id, const PrivateData& data) : size(id.header_size() + data.length) {
    if (id.header_size() != 0)
      write_cma_header(id.source, id.destination, std::span(bytes).first<kCmaHeaderSize>());
    std::memcpy(bytes.data() + id.header_size(), data.bytes, data.length);
  }
  std::span<const uint8_t> get() const { return {bytes.data(), size}; }
};

Peer receiver_of(const Id& id) {
  const uint64_t sid = service_id(id.space, id.destination);
  if (!id.reaches_node && is_remote(id.service.devices(), id.destination))
    return id.service.remote_receiver_of(sid, id.source, id.destination);
  return id.service.receiver_of(space_of_service(sid), id.destination,
                                id.reaches_node ? id.far.device : id.place.device);
}

int send_request(Id& id, const ConnectionParameters& p, const Ece& ece, Connection& connection) {
  const RequestData data(id, p.private_data);
  const uint64_t sid = service_id(id.space, id.destination);
  if (id.is_datagram())
    return connection.send_sidr_req(
        {.peer = receiver_of(id), .service_id = sid, .path = id.paths[0], .private_data = data.get()});
  return connection.send_req({.peer = receiver_of(id),
                              .service_id = sid,
                              .ca_guid = id.node_guid(),
                              .ack_delay = kAckDelay,
                              .qp_type = id.qp_type,
                              .qp_number = p.qp_number,
                              .psn = id.psn,
                              .srq = p.srq,
                              .responder_resources = p.responder_resources,
                              .initiator_depth = p.initiator_depth,
                              .flow_control = p.flow_control,
                              .retry_count = at_most_7(p.retry_count),
                              .rnr_retry_count = at_most_7(p.rnr_retry_count),
                              .ece = ece,
                              .primary = id.paths[0],
                              .alternate = id.path_count == 2 ? &id.paths[1] : nullptr,
                              .private_data = data.get()});
}

}  // namespace

int connect(Id* id, const ConnectionParameters& parameters, const Ece& ece) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->stage != Stage::kRouteResolved) return EINVAL;
    const size_t room = id->is_datagram() ? kSidrReqPrivateData : kReqPrivateData;
    if (id->header_size() + parameters.private_data.length > room) {
      VERBENA_WARN(cm_private_data,
                   "rdma_connect: %u bytes of private data are more than the %zu that a request has room for",
                   parameters.private_data.length, room - id->header_size());
      return EINVAL;
    }
    auto connection = std::make_unique<Connection>(id->service.connections(), id);
    if (int error = send_request(*id, parameters, ece, *connection); error != 0) return error;
    id->connection = std::move(connection);
    id->qp_number = parameters.qp_number;
    id->srq = parameters.srq;
    id->stage = Stage::kConnect;
    id->publish();
    return 0;
  });
}

namespace {

int accept_datagrams(Id& id, const ConnectionParameters* p) {
  uint32_t qkey;
  if (int error = qkey_of(id.space, id.qkey, p != nullptr ? p->qkey : 0, &qkey); error != 0) return error;
  if (int error = id.connection->send_sidr_rep(
          {.status = kSidrSuccess,
           .qp_number = id.qp_number,
           .qkey = qkey,
           .private_data = p != nullptr ? data_of(p->private_data) : std::span<const uint8_t>{}});
      error != 0)
    return error;
  id.qkey = qkey;
  return 0;
}

int accept_connection(Id& id, const ConnectionParameters* p, const Ece& ece) {
  if (p == nullptr) return id.connection->send_rtu();
  return id.connection->send_rep({.ca_guid = id.node_guid(),
                                  .ack_delay = kAckDelay,
                                  .qp_number = p->qp_number,
                                  .psn = id.psn,
                                  .srq = p->srq,
                                  .responder_resources = p->responder_resources,
                                  .initiator_depth = p->initiator_depth,
                                  .flow_control = p->flow_control,
                                  .rnr_retry_count = at_most_7(p->rnr_retry_count),
                                  .ece = ece,
                                  .private_data = data_of(p->private_data)});
}

int reject_locked(Id& id, std::span<const uint8_t> data, RejectReason reason) {
  if (id.connection == nullptr) return EINVAL;
  return id.is_datagram() ? id.connection->send_sidr_rep(
                                {.status = kSidrReject, .qp_number = 0, .qkey = 0, .private_data = data})
                          : id.connection->send_rej(reason, data);
}

}  // namespace

int accept(Id* id, const ConnectionParameters* parameters, const Ece& ece) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->stage != Stage::kConnect || id->connection == nullptr) return EINVAL;
    if (parameters != nullptr) {
      id->qp_number = parameters->qp_number;
      id->srq = parameters->srq;
    }
    const int error =
        id->is_datagram() ? accept_datagrams(*id, parameters) : accept_connection(*id, parameters, ece);
    if (error != 0) reject_locked(*id, {}, kRejectConsumer);  // as rdma_accept
    id->publish();
    return error;
  });
}

int reject(Id* id, const PrivateData& data, uint8_t reason) {
  return guarded([&] {
    Service::Guard guard(id->service);
    const int error = reject_locked(*id, data_of(data), reason == 0 ? kRejectConsumer : RejectReason{reason});
    id->publish();
    return error;
  });
}

int disconnect(Id* id) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->connection == nullptr) return EINVAL;
    // Requests the end, or agrees to the peer's request. In any other state there is nothing to do.
    if (id->connection->send_dreq() != 0) id->connection->send_drep();
    id->publish();
    return 0;
  });
}

int notify(Id* id, ibv_event_type event) {
  return guarded([&] {
    Service::Guard guard(id->service);
    if (id->connection == nullptr) return EINVAL;
    // cm.c, cm_migrate: messages take the alternate path from now on. Here all paths lead to the peer's
    // process.
    if (event == IBV_EVENT_PATH_MIG) return id->connection->state() == CmState::kEstablished ? 0 : EINVAL;
    if (event != IBV_EVENT_COMM_EST) return EINVAL;
    if (int error = id->connection->establish(); error != 0) return error;
    if (id->stage == Stage::kConnect) id->raise(id->new_event(EventType::kEstablished));
    id->publish();
    return 0;
  });
}

}  // namespace verbena::cm
