// SPDX-License-Identifier: BSD-2-Clause
//
// Queries of an id (ucma.c: ucma_query_route, ucma_query; cma.c: rdma_read_gids, rdma_init_qp_attr).
#include <endian.h>
#include <errno.h>

#include <cstring>

#include "cm/connection_qp.h"
#include "cm/id.h"

namespace verbena::cm {
namespace {

Gid gid_for(const Address& address, LinkLayer link_layer, const Gid& on_infiniband) {
  return link_layer == LinkLayer::kEthernet ? gid_of(address) : on_infiniband;
}

}  // namespace

void query(Id* id, Route* out) {
  *out = Route{};
  Service::Guard guard(id->service);
  write_address(id->source, &out->source);
  write_address(id->destination, &out->destination);
  if (!id->has_device) return;
  const DeviceDescription& device = id->device();
  out->has_device = true;
  std::memcpy(out->device_name, device.name.data(), sizeof out->device_name);
  out->node_guid = htobe64(device.node_guid);
  out->port = id->place.port;
  out->pkey = kDefaultPkey;
  const Gid source = gid_for(id->source, device.link_layer, id->place.gid);
  const Gid destination = gid_for(id->destination, device.link_layer, id->reaches_node ? id->far.gid : Gid{});
  std::memcpy(out->source_gid.raw, source.data(), 16);
  std::memcpy(out->destination_gid.raw, destination.data(), 16);
  out->path_count = id->path_count;
  for (uint32_t i = 0; i < id->path_count; ++i) out->paths[i] = to_user(id->paths[i]);
}

namespace {

Exchange exchange_of(const Id& id) {
  if (id.connection == nullptr || id.is_datagram()) return Exchange::kNone;
  switch (id.connection->state()) {
    case CmState::kReqSent:
    case CmState::kMraReqReceived:
      return Exchange::kRequestSent;
    case CmState::kReqReceived:
    case CmState::kMraReqSent:
    case CmState::kRepSent:
    case CmState::kMraRepReceived:
    case CmState::kRepReceived:
    case CmState::kMraRepSent:
    case CmState::kEstablished:
      return Exchange::kOpen;
    default:
      return Exchange::kOver;
  }
}

}  // namespace

int init_qp_attributes(Id* id, ibv_qp_attr* attr, int* mask) {
  Service::Guard guard(id->service);
  if (!id->has_device) return EINVAL;
  QpFacts facts{};
  facts.exchange = exchange_of(*id);
  facts.type = id->qp_type;
  facts.port = id->place.port;
  if (int error = qkey_of(id->space, id->qkey, 0, &facts.qkey); error != 0) return error;
  if (id->is_datagram()) id->qkey = facts.qkey;
  if (id->connection != nullptr && !id->is_datagram()) {
    const ConnectionFacts& known = id->connection->facts();
    facts.remote_qpn = known.remote_qpn;
    facts.receive_psn = id->psn;  // the peer starts at the PSN that our message gave, and the other way round
    facts.send_psn = known.sq_psn;
    facts.address = address_vector(known.path, id->device().link_layer, id->place.gid_index, id->place.port);
    facts.path_mtu = known.mtu;
    facts.responder_resources = known.responder_resources;
    facts.initiator_depth = known.initiator_depth;
    facts.retry_count = known.retry_count;
    facts.rnr_retry_count = known.rnr_retry_count;
    facts.ack_timeout = known.timeout;
  }
  facts.ack_timeout_is_set = id->ack_timeout_set;
  facts.set_ack_timeout = id->ack_timeout;
  return connection_qp_attributes(facts, attr, mask);
}

}  // namespace verbena::cm
