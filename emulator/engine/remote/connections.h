// SPDX-License-Identifier: BSD-2-Clause
//
// Which queue pair of this process has its peer in which other process, and the connections to those
// processes. A queue pair that has something to send and no connection seeks one:
//
// - The process with its peer is known and connected: the path is bound to it.
// - The process is known and not connected: a connection to it is requested.
// - Another process of that node is connected: it is asked which process has the queue pair
// (wire::QueryHead).
// - No process of that node is connected: a connection to the owner of the queue pair is requested.
//
// Locks: the progress lock (progress.h) > Qp::send_lock > RemotePeer::out_mutex; Qp::send_lock > seek_mutex_.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/objects/network.h"
#include "engine/remote/outgoing_datagrams.h"
#include "engine/remote/peers.h"
#include "engine/remote/qp_locations.h"
#include "engine/remote/remote_path.h"
#include "wire/established_connection.h"

namespace verbena {

// How connections to other nodes are requested: ConnectionListener::connect(), or a test's function.
struct Connector {
  uint64_t (*connect)(void* context, const wire::NetAddress& to, const wire::NetAddress& from,
                      const wire::Target& target, int64_t deadline_ns) = nullptr;
  void* context = nullptr;
  bool leads_out = true;  // false: the node has no network
};

// A queue pair of this process whose peer is reached by frames.
struct Route {
  Qp* qp = nullptr;
  std::shared_ptr<RemotePath> path;
  std::shared_ptr<RemotePeer> peer;  // the process that has the queue pair's peer; nullptr: not known yet
  int64_t asked_at = 0;              // ns: when a connection or the process was last asked for; 0: never
  int64_t since = 0;                 // ns
};

class Connections {
 public:
  Connections(Process& process, const wire::ProcessId& self, const Connector& connector, PathOwner& owner);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // ---- any thread ----

  // Network::path_to, path_within, leads_out, is_own
  std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr);
  std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn);
  bool leads_out() const { return connector_.leads_out; }
  bool is_own(const ibv_ah_attr& address) const;

  // PathOwner::seek
  void seek(uint32_t qpn);
  bool seeks() const { return seeking_.load(std::memory_order_relaxed); }

  // Is any process connected?
  bool is_active() const { return active_.load(std::memory_order_relaxed); }

  OutgoingDatagrams& datagrams() { return datagrams_; }

  // ---- under the progress lock ----

  RemotePeers& peers() { return peers_; }
  const RemotePeers& peers() const { return peers_; }

  void add_route(Qp& qp, const std::shared_ptr<RemotePath>& path);
  void remove_route(const Qp& qp);
  // Is it for this process to request the connection? One of the two begins, so that there are not two
  // connections.
  bool begins(const RemotePath& path) const;
  // The route of the own queue pair `qpn`; nullptr: none.
  Route* find_route(uint32_t qpn);
  bool has_routes_to(const RemotePeer& peer) const;
  // The peer of the route's queue pair is in that process: what waits is sent.
  void bind(Route& route, const std::shared_ptr<RemotePeer>& peer);

  // Serves what seeks() and sends the datagrams that wait.
  void serve(int64_t now);
  bool send_waiting_datagrams(int64_t now);  // do some still wait?
  // This process ends. Datagrams to processes of this node that are not connected yet go without a
  // connection.
  void pass_last_datagrams();

  // A process of another node has begun a connection that is not welcomed yet. Is it to wait for the own
  // connection to it that is requested? If both were made, one would replace the other, and datagrams in
  // flight on that one would be lost.
  bool prefers_own(const wire::EstablishedConnection& arriving, int64_t now) const;
  // May the new connection be used? false: it was closed. It is refused if the address has too many, and if
  // two processes have connected to each other at the same moment and the other connection stays.
  bool may_enter(const wire::EstablishedConnection& arrived);
  // Puts the connection to use. An earlier one to the same process has ended (lose()).
  void admit(const wire::EstablishedConnection& arrived);
  // A process of this node asks for a connection to it (within_node.h).
  void connect_as_asked(const wire::ProcessId& by);
  // The connection has ended. What was in flight on it is sent again on the next one.
  void lose(RemotePeer& peer);
  // ConnectionObserver::failed, taken
  void failed(uint64_t request_id, wire::Refusal refusal);
  void taken(uint64_t request_id);

  // A datagram of queue pair `qpn` has come from the process: replies go there.
  void note_source(RemotePeer& peer, uint32_t qpn) {
    locations_.note(peer.address, qpn, peer.shared_from_this());
  }
  // The process says which process of its node has a queue pair.
  void located(RemotePeer& by, const wire::WhereaboutsHead& head);

 private:
  struct ConnectRequest {
    uint64_t request_id;
    wire::NetAddress to;
    uint32_t qpn;  // the queue pair whose owner was asked for; 0: the process `peer`
    std::shared_ptr<RemotePeer> peer;
    int64_t since;          // ns
    bool is_taken = false;  // a process at the other end has accepted it, and has not replied yet
  };

  void set_peer(Route& route, const std::shared_ptr<RemotePeer>& peer);
  void find_peer(Route& route, int64_t now);
  void serve_seeks(int64_t now);
  void request_connection(const wire::NetAddress& to, const wire::NetAddress& from,
                          const wire::Target& target, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer);
  wire::ProcessId process_with(uint32_t qpn) const;
  void request_connection_within(const wire::Target& target);
  void forget_request(const ConnectRequest& request);
  void note_taken(const wire::NetAddress& to, bool taken);
  void note_taken(const RemotePeer& peer, bool taken);
  bool is_wanted(const wire::NetAddress& at, uint32_t qpn);
  void publish();

  Process& process_;
  const wire::ProcessId self_;
  const Connector connector_;
  PathOwner& owner_;
  RemotePeers peers_;
  QpLocations locations_;
  OutgoingDatagrams datagrams_{process_, locations_};
  std::unordered_map<uint32_t, Route> routes_;  // by own number
  std::vector<ConnectRequest> connect_requests_;
  std::mutex seek_mutex_;
  std::vector<uint32_t> seeks_;
  std::atomic<bool> seeking_{false};
  std::atomic<bool> active_{false};
  std::atomic<uint64_t> next_path_generation_{1};
};

}  // namespace verbena
