// SPDX-License-Identifier: BSD-2-Clause
//
// The effects of a connection's events (cma.c: cma_ib_handler, cma_sidr_rep_handler).
#include <errno.h>

#include "cm/event_data.h"
#include "cm/id.h"
#include "observe/log.h"

namespace verbena::cm {

using enum Field;

namespace {

struct Meaning {
  CmEvent cause;
  EventType type;
  int status;
  bool ends;  // the connection: kConnect -> kDisconnect
};

constexpr Meaning kMeanings[] = {
    {CmEvent::kReqError, EventType::kUnreachable, -ETIMEDOUT, false},
    {CmEvent::kRepError, EventType::kUnreachable, -ETIMEDOUT, false},
    {CmEvent::kSidrReqError, EventType::kUnreachable, -ETIMEDOUT, false},
    {CmEvent::kRepReceived, EventType::kConnectResponse, 0, false},
    {CmEvent::kRtuReceived, EventType::kEstablished, 0, false},
    {CmEvent::kDreqError, EventType::kDisconnected, -ETIMEDOUT, true},
    {CmEvent::kDreqReceived, EventType::kDisconnected, 0, true},
    {CmEvent::kDrepReceived, EventType::kDisconnected, 0, true},
    {CmEvent::kRejReceived, EventType::kRejected, 0, false},
    {CmEvent::kSidrRepReceived, EventType::kEstablished, 0, false},
    {CmEvent::kTimewaitExit, EventType::kTimewaitExit, 0, false},
};

std::span<const uint8_t> data_of(const Message& m) {
  return std::span(m.private_data).first(private_data_size(m.kind));
}

// cma_set_rep_event_data.
void put_response(const Message& m, const ConnectionFacts& facts, Event* event) {
  ConnectionParameters& c = event->connection;
  put_private_data(data_of(m), &c.private_data);
  c.responder_resources = facts.responder_resources;
  c.initiator_depth = facts.initiator_depth;
  c.flow_control = static_cast<uint8_t>(m[kFlowControl]);
  c.rnr_retry_count = static_cast<uint8_t>(m[kRnrRetryCount]);
  c.srq = m[kSrq] != 0;
  c.qp_number = facts.remote_qpn;
  event->ece = ece_of(m);
}

void put_sidr_response(Id& id, const Message& m, Event* event) {
  DatagramParameters& d = event->datagram;
  put_private_data(data_of(m), &d.private_data);
  if (m[kStatus] != kSidrSuccess) {
    event->type = EventType::kUnreachable;
    event->status = static_cast<int>(m[kStatus]);
    return;
  }
  const auto qkey = static_cast<uint32_t>(m[kQkey]);
  if (int error = qkey_of(id.space, id.qkey, qkey, &id.qkey); error != 0) {
    event->type = EventType::kAddressError;
    event->status = -error;
    return;
  }
  d.qp_number = static_cast<uint32_t>(m[kQpn]);
  d.qkey = qkey;
  d.address = address_vector(id.paths[0], id.device().link_layer, id.place.gid_index, id.place.port);
}

}  // namespace

void Id::connection_event(CmEvent cause, const Message* message) {
  if (stage != (cause == CmEvent::kTimewaitExit ? Stage::kDisconnect : Stage::kConnect)) return publish();
  for (const Meaning& meaning : kMeanings) {
    if (meaning.cause != cause) continue;
    Event event = new_event(meaning.type, meaning.status);
    if (cause == CmEvent::kRepReceived) {
      connection->delay();
      put_response(*message, connection->facts(), &event);
    }
    if (cause == CmEvent::kRejReceived) {
      event.status = static_cast<int>((*message)[kReason]);
      put_private_data(data_of(*message), &event.connection.private_data);
    }
    if (cause == CmEvent::kSidrRepReceived) put_sidr_response(*this, *message, &event);
    if (meaning.ends) stage = Stage::kDisconnect;
    raise(event);
  }
  publish();
}

}  // namespace verbena::cm
