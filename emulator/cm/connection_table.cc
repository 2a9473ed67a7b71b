// SPDX-License-Identifier: BSD-2-Clause
#include "cm/connection_table.h"

#include <algorithm>
#include <vector>

namespace verbena::cm {

using enum Field;

uint32_t ConnectionTable::add(Connection* connection) {
  const auto following = [this](uint32_t id) { return (id & ~mask_) | ((id + 1) & mask_); };
  while (next_id_ == 0 || by_local_id_.contains(next_id_)) next_id_ = following(next_id_);
  const uint32_t id = next_id_;
  by_local_id_[id] = connection;
  next_id_ = following(id);
  return id;
}

Connection* ConnectionTable::find(const Peer& peer, uint64_t local_id) const {
  const auto found = by_local_id_.find(static_cast<uint32_t>(local_id));
  return found != by_local_id_.end() && found->second->peer() == peer ? found->second : nullptr;
}

void ConnectionTable::receive(const Peer& peer, const Message& message) {
  switch (message.kind) {
    case MessageKind::kReq:
      return receive_req(peer, message);
    case MessageKind::kSidrReq:
      return receive_sidr_req(peer, message);
    default:
      return receive_for_one(peer, message);
  }
}

// cm_acquire_id, cm_acquire_rejected_id, cm_acquire_mraed_id.
Connection* ConnectionTable::receiver_of(const Peer& peer, const Message& m) const {
  if (m.kind == MessageKind::kSidrRep) return find(peer, m[kLocalId]);
  const auto from = static_cast<uint32_t>(m[kLocalId]);
  if (m.kind == MessageKind::kRej && m[kReason] == kRejectTimeout) {
    // The sender never learned our ID.
    const auto found = by_remote_id_.find({peer, from});
    return found == by_remote_id_.end() ? nullptr : found->second;
  }
  Connection* connection = find(peer, m[kRemoteId]);
  if (connection == nullptr || connection->remote_id_ == from) return connection;
  // A peer that has not replied yet is not known by its ID.
  const bool first_answer =
      m.kind == MessageKind::kRep ||
      ((m.kind == MessageKind::kRej || m.kind == MessageKind::kMra) && m[kWhichMessage] == kAnsweredReq);
  return first_answer && connection->remote_id_ == 0 ? connection : nullptr;
}

void ConnectionTable::receive_for_one(const Peer& peer, const Message& m) {
  if (Connection* connection = receiver_of(peer, m); connection != nullptr) return connection->receive(m);
  if (m.kind != MessageKind::kDreq) return;
  // cm_issue_drep: the connection has ended on this side; the reply notifies the peer.
  Message drep;
  drep.kind = MessageKind::kDrep;
  drep.source = m.destination;
  drep.destination = m.source;
  drep[kTransaction] = m[kTransaction];
  drep[kLocalId] = m[kRemoteId];
  drep[kRemoteId] = m[kLocalId];
  wire_.send(peer, drep);
}

namespace {

// cm_issue_rej.
Message rejection_of(const Message& m, RejectReason reason, MessageAnswered answered) {
  Message rej;
  rej.kind = MessageKind::kRej;
  rej.source = m.destination;
  rej.destination = m.source;
  rej[kTransaction] = m[kTransaction];
  rej[kLocalId] = m[kRemoteId];
  rej[kRemoteId] = m[kLocalId];
  rej[kWhichMessage] = answered;
  rej[kReason] = reason;
  return rej;
}

}  // namespace

void ConnectionTable::reject_stale(const Peer& peer, const Message& m, MessageAnswered answered) {
  wire_.send(peer, rejection_of(m, kRejectStaleConnection, answered));
}

// cm_req_handler, cm_match_req, cm_dup_req_handler.
void ConnectionTable::receive_req(const Peer& peer, const Message& m) {
  const Key id{peer, static_cast<uint32_t>(m[kLocalId])};
  const Key qpn{peer, static_cast<uint32_t>(m[kQpn])};
  if (const auto same = by_remote_id_.find(id); same != by_remote_id_.end()) {
    if (same->second->state() == CmState::kMraReqSent) same->second->answer_again(m);
    return;
  }
  if (const auto stale = by_remote_qpn_.find(qpn); stale != by_remote_qpn_.end()) {
    reject_stale(peer, m, kAnsweredReq);
    stale->second->send_dreq();
    return;
  }
  auto connection = std::make_unique<Connection>(*this, nullptr);
  connection->take_req(peer, m);
  connection->listed_id_ = connection->listed_qpn_ = true;
  by_remote_id_[id] = by_remote_qpn_[qpn] = connection.get();
  if (arrivals_.arrived(connection, m) == Arrival::kNobodyListens) {
    connection->forget();
    wire_.send(peer, rejection_of(m, kRejectInvalidServiceId, kAnsweredReq));
  }
  // Refused: its destructor rejects.
}

// cm_sidr_req_handler.
void ConnectionTable::receive_sidr_req(const Peer& peer, const Message& m) {
  const Key request{peer, static_cast<uint32_t>(m[kLocalId])};
  if (by_sidr_request_.contains(request)) return;
  auto connection = std::make_unique<Connection>(*this, nullptr);
  connection->take_sidr_req(peer, m);
  connection->listed_sidr_ = true;
  by_sidr_request_[request] = connection.get();
  if (arrivals_.arrived(connection, m) == Arrival::kNobodyListens)
    connection->send_sidr_rep({.status = kSidrUnsupported, .qp_number = 0, .qkey = 0, .private_data = {}});
}

void ConnectionTable::rename(const Peer& before, const Peer& peer) {
  for (const auto& [id, connection] : by_local_id_)
    if (connection->peer() == before) connection->peer_ = peer;
}

bool ConnectionTable::has_connections_with(const Peer& peer) const {
  return std::any_of(by_local_id_.begin(), by_local_id_.end(),
                     [&](const auto& entry) { return entry.second->peer() == peer; });
}

void ConnectionTable::nobody_answers_for(const Peer& peer, const Message& m) {
  if (m.kind == MessageKind::kReq) {
    receive_for_one(peer, rejection_of(m, kRejectInvalidServiceId, kAnsweredReq));
  } else if (m.kind == MessageKind::kSidrReq) {
    Message rep;
    rep.kind = MessageKind::kSidrRep;
    rep.source = m.destination;
    rep.destination = m.source;
    rep[kTransaction] = m[kTransaction];
    rep[kLocalId] = m[kLocalId];
    rep[kServiceId] = m[kServiceId];
    rep[kStatus] = kSidrUnsupported;
    receive_for_one(peer, rep);
  }
}

// No connection is added or removed by that.
void ConnectionTable::notify_of_end() {
  for (const auto& [id, connection] : by_local_id_) connection->notify_of_end();
}

void ConnectionTable::lose(const Peer& peer) {
  std::vector<uint32_t> concerned;
  for (const auto& [id, connection] : by_local_id_)
    if (connection->peer() == peer) concerned.push_back(id);
  for (const uint32_t id : concerned)  // an event may end other connections
    if (const auto found = by_local_id_.find(id); found != by_local_id_.end()) found->second->lose_peer();
}

}  // namespace verbena::cm
