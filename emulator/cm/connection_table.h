// SPDX-License-Identifier: BSD-2-Clause
//
// All connections of this process: it finds the connection of a message, and handles messages without a
// connection (cm.c: cm_match_req, cm_acquire_id and their users).
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "cm/connection.h"

namespace verbena::cm {

// Carries messages to other processes, in order. A message to a peer that is gone is lost; the table learns
// of it later through lose().
class Wire {
 public:
  virtual void send(const Peer& peer, const Message& message) = 0;

 protected:
  ~Wire() = default;
};

enum class Arrival {
  kNobodyListens,  // on this service ID
  kRefused,        // a listener exists, but refuses this request
  kTaken,          // the connection has an owner now
};

class ArrivalHandler {
 public:
  // A REQ or SIDR_REQ. With kTaken the handler has taken the connection over.
  virtual Arrival arrived(std::unique_ptr<Connection>& connection, const Message& message) = 0;

 protected:
  ~ArrivalHandler() = default;
};

class ConnectionTable {
 public:
  // `first_id`: the first communication ID. IDs must differ from those of the previous process in the slot.
  // The bits that are not in `mask` are the same in all IDs.
  ConnectionTable(Wire& wire, AlarmClock& clock, ArrivalHandler& arrivals, uint32_t first_id,
                  uint32_t mask = UINT32_MAX)
      : wire_(wire), clock_(clock), arrivals_(arrivals), next_id_(first_id), mask_(mask) {}

  void receive(const Peer& peer, const Message& message);

  // The process of the unknown peer `before` is found: connections with `before` are now with `peer`.
  void rename(const Peer& before, const Peer& peer);
  // The remote node has no process for our `request`: its connection ends as if a process there had rejected
  // it.
  void nobody_answers_for(const Peer& peer, const Message& request);
  bool has_connections_with(const Peer& peer) const;

  // The peer is gone: every connection with it ends as if its other end had been destroyed properly.
  void lose(const Peer& peer);

  // The process exits: the peers of all connections are notified.
  void notify_of_end();

 private:
  friend class Connection;
  using Key = std::pair<Peer, uint32_t>;

  uint32_t add(Connection* connection);
  void receive_req(const Peer& peer, const Message& message);
  void receive_sidr_req(const Peer& peer, const Message& message);
  void receive_for_one(const Peer& peer, const Message& message);
  Connection* find(const Peer& peer, uint64_t local_id) const;
  Connection* receiver_of(const Peer& peer, const Message& message) const;
  void reject_stale(const Peer& peer, const Message& message, MessageAnswered answered);

  Wire& wire_;
  AlarmClock& clock_;
  ArrivalHandler& arrivals_;
  uint32_t next_id_;
  const uint32_t mask_;
  std::unordered_map<uint32_t, Connection*> by_local_id_;
  std::map<Key, Connection*> by_remote_id_;
  std::map<Key, Connection*> by_remote_qpn_;
  std::map<Key, Connection*> by_sidr_request_;
};

}  // namespace verbena::cm
