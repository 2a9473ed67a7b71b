// SPDX-License-Identifier: BSD-2-Clause
//
// Links to other processes of the node: one socket each. It is created when there is something to send, or
// comes from the other process, which calls this one's service (fabric/service_socket.h). Frames arrive in
// the order sent. When a link breaks, its process is gone (or its service has ended, which has the same
// effect). A peer that does not read blocks no other process: frames that its socket does not take wait here,
// and beyond kMaxWaiting frames the newest are lost, as in any network.
//
// A link carries a hello, in the message that calls the service, then frames of fixed size (message.h). A
// link to a process of another node is a connection of the connection listener (wire/connection_listener.h),
// and carries frames alone. When it breaks while it is needed, a new connection to the process is requested.
// The process counts as lost only if it is gone, or cannot be reached for kReconnectPatience. Several
// connections to one process may come about; link_remote.cc says which of them stay.
//
// No locks here: the service's lock guards everything. Sends and receives are non-blocking, so that they may
// run under it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cm/alarm.h"
#include "cm/connection.h"
#include "cm/stream.h"
#include "fabric/node_directory.h"
#include "fabric/service_inbox.h"
#include "wire/connection_requests.h"
#include "wire/established_connection.h"

namespace verbena::cm {

// What poll(2) reports for which descriptor: the owner of the links watches their descriptors.
class Watcher {
 public:
  virtual void watch(int fd, uint64_t token, bool for_room) = 0;  // again: changes `for_room`
  virtual void forget(int fd) = 0;

 protected:
  ~Watcher() = default;
};

class LinkUser {
 public:
  virtual void frame_arrived(const Peer& peer, std::span<const uint8_t> frame) = 0;
  virtual void peer_lost(const Peer& peer) = 0;
  // For other nodes: the process of the unknown peer `before` (connect()) is found; or there is no process
  // that takes the frame.
  virtual void peer_found(const Peer& before, const Peer& peer) = 0;
  virtual void nobody_there(const Peer& peer, std::span<const uint8_t> frame) = 0;
  virtual bool is_of_interest(const Peer& peer) const = 0;

 protected:
  ~LinkUser() = default;
};

class Links {
 public:
  // Tokens of its descriptors are `first_token` and above.
  Links(Watcher& watcher, LinkUser& user, AlarmClock& clock, uint64_t first_token);
  ~Links();

  // Serves other processes through `services`. When one has called, `wake(context)` runs in the thread that
  // serves them, which may not wait for the service's lock; then accept_all() has work.
  void open(const std::string& node, const NodeDirectory& directory, const Peer& self,
            ServiceSocket& services, void (*wake)(void*), void* context);
  // On return `wake` is not running, and is not run any more.
  void stop_accepting() { calls_.close(); }
  void accept_all();

  // Never fails. If a frame cannot be sent, carry() calls peer_lost() later.
  void send(const Peer& peer, const Frame& frame);

  // ---- other nodes ----
  // `self`: the id by which other nodes know this process.
  void go_out_by(wire::ConnectionRequests& requests, const wire::ProcessId& self) {
    requests_ = &requests;
    id_ = self;
  }
  // A peer for the process that serves `service` at `to`. Frames to it wait until that process is known. They
  // are lost if it is not found within the time that a request is repeated (kConnectPatience).
  Peer connect(const wire::NetAddress& to, const wire::NetAddress& from, uint64_t service);
  void arrived(const wire::EstablishedConnection& arrived);
  void failed(uint64_t request_id, wire::Refusal refusal);

  static constexpr int64_t kConnectPatience =
      75'000'000'000;  // a request is sent 16 times, 4.6 s apart (connection.h: kCmRetries)
  static constexpr int64_t kReconnectPatience = 15'000'000'000;

  // Handles a descriptor that is ready.
  void ready(uint64_t token);

  // Handles what send() has left: peers that are gone, and frames to this process itself.
  void carry();
  bool has_to_carry() const { return !lost_.empty() || !to_self_.empty(); }

  void close_in_child() const;

  static constexpr size_t kMaxWaiting = 4096;

 private:
  struct Link {
    MessageSocket socket;
    Peer peer{};
    bool connected = false;    // false: connecting is tried again
    bool awaits_room = false;  // watched for it
    uint64_t token = 0;
    std::deque<Frame> waiting;
    // For a process of another node:
    Stream stream;
    wire::NetAddress to, from;
    bool begun_here = false;
    bool only_receives = false;  // our direction is closed
    uint64_t request_id = 0;     // of the connection request in progress; 0: none

    bool is_remote() const { return peer.is_remote(); }
    int fd() const { return is_remote() ? stream.fd() : socket.fd(); }
    int send(const Frame& frame) { return is_remote() ? stream.send(frame) : socket.send(frame); }
    bool has_more() const { return !waiting.empty() || stream.has_rest(); }
  };

  void read(Link& link);
  void flush(Link& link);
  bool connect(Link& link);
  bool greeted(Link& link, std::span<const uint8_t> bytes);
  void drop(uint64_t token);
  void hang_up(Link& link);
  void connected(Link& link, int fd);
  void receive_only(Link& link, int fd);
  void move_way(Link& from, Link& to);
  Link* way_to(const Peer& peer);
  Link* other_link(const Link& link);
  Link* find_request(uint64_t request_id);
  void forget_link(uint64_t token);
  void watch(Link& link);
  static void try_again(void* self);

  Watcher& watcher_;
  LinkUser& user_;
  uint64_t next_token_;
  std::string node_;
  const NodeDirectory* directory_ = nullptr;
  Peer self_{};
  ServiceInbox calls_;
  wire::ConnectionRequests* requests_ = nullptr;
  wire::ProcessId id_;
  uint32_t next_call_ = 1;
  std::map<uint64_t, std::unique_ptr<Link>> links_;
  std::map<Peer, uint64_t> ways_;  // where to send
  std::vector<Peer> lost_;
  std::deque<Frame> to_self_;
  Alarm again_;  // to connect once more
};

}  // namespace verbena::cm
