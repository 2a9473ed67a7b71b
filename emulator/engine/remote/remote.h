// SPDX-License-Identifier: BSD-2-Clause
//
// This process among those that are reached by frames: those of other nodes, and of this one those whose memory cannot
// be reached (PeerAdapter::is_within_reach). Whom it is connected to, which of its queue pairs have a peer
// there, and who drives the sockets. One turn at a time: a program's poll takes it if nobody has it, the
// service thread otherwise (drive()). The service thread sleeps on the sockets, too; but while the program
// polls it keeps away from them, as long as what comes is found by the program first.
//
// Locks: the driver's turn > Qp::send_lock > RemotePeer::out_mutex; known_mutex_ > out_mutex;
// Qp::send_lock > seek_mutex_, watch_mutex_.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/objects/network.h"
#include "engine/remote/groups.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote_path.h"
#include "wire/connection_listener.h"

namespace verbena {

enum class Taken : uint8_t;

// How connections are asked for: the connection listener's connect(), or a test's.
struct Connector {
  uint64_t (*connect)(void* context, const wire::NetAddress& to, const wire::NetAddress& from,
                       const wire::Target& target, int64_t deadline_ns) = nullptr;
  void* context = nullptr;
  bool leads_out = true;  // false: the node has no network
};

// Is this message, which came with a connection, from a process of the node that is to be reached by frames?
bool is_connection_request(const std::byte* message, size_t size);

class Remote final : public Network, public wire::ConnectionObserver {
 public:
  Remote(Process& process, const wire::ProcessId& self, Connector caller);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // Becomes readable when something comes and the service thread is to see to it; -1: no descriptors.
  int descriptor() const { return outer_; }

  // ---- Network ----
  std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr) override;
  std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn) override;
  void connect(Qp& qp, const std::shared_ptr<Transport>& path) override;
  void forget(Qp& qp) override;
  bool leads_out() const override { return connector_.leads_out; }
  bool is_own(const ibv_ah_attr& address) const override;
  bool is_full(const wire::NetAddress& to, uint32_t qpn) override;
  void send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override;
  void listen_to_groups() override { groups_.listen(); }
  void send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override {
    groups_.send(from, head, bytes, size);
  }
  void drive_from_poll() override;
  void before_sleep() override;
  void receive_posted() override;

  // ---- for its queue pairs ----
  void seek(uint32_t qpn);  // it has something to send, and no connection. Under its send_lock
  void watch(Qp& qp);       // it has something in flight. Under its send_lock

  // ---- who drives ----

  bool is_active() const { return active_.load(std::memory_order_relaxed); }
  // The service thread's turn. When to come again, ns.
  int64_t serve();
  // Sends what has gathered.
  void flush_all();
  // The same, unless somebody is at it: he may be the one who calls exit(3).
  void flush_at_exit();

  // Another process of this node calls. In the service thread.
  void take_connection_request(const std::byte* message, Descriptor& connection);

  RemoteGroups& groups() { return groups_; }

  // wire::ConnectionObserver, in the service thread (or a test's)
  void arrived(const wire::EstablishedConnection& arrived) override;
  void failed(uint64_t request_id, wire::Refusal refusal) override;
  void taken(uint64_t request_id) override;

 private:
  struct Route {
    Qp* qp = nullptr;
    std::shared_ptr<RemotePath> path;
    std::shared_ptr<RemotePeer> peer;  // who has the queue pair there
    int64_t asked_at = 0;              // ns; 0: not yet
    int64_t since = 0;                 // ns
  };
  struct ConnectRequest {
    uint64_t request_id;
    wire::NetAddress to;
    uint32_t qpn;  // that was asked for; 0: the process `peer`
    std::shared_ptr<RemotePeer> peer;
  };
  struct WaitingDatagram {
    DatagramTo to;
    int64_t until;         // ns: then it is lost
    int64_t ask_again_at;  // ns
    std::vector<std::byte> frame;
  };

  // All of these in the driver's turn.
  void admit(const wire::EstablishedConnection& arrived);
  void request_connection_within(const wire::Target& target);  // within_node.cc
  bool drive(bool from_service);
  bool awaits_rest() const;
  void take_rest();
  bool drive_one(RemotePeer& peer, bool from_service);
  bool parse(RemotePeer& peer);
  enum class Next : uint8_t { kOn, kMore, kStop };
  Next parse_one(RemotePeer& peer);
  Next go_on_with_bulk(RemotePeer& peer);
  Next take_request(RemotePeer& peer, const wire::Frame& frame);
  Next after(RemotePeer& peer, RemoteRequester& remote_requester, Taken taken);
  Next take_answer_frame(RemotePeer& peer, const wire::Frame& frame);
  bool scatter(Qp& qp, RemotePeer& peer, const wire::AnswerHead& head);
  Next take_query(RemotePeer& peer, const wire::Frame& frame);
  Next take_datagram(RemotePeer& peer, const wire::Frame& frame);
  bool may_be_held(RemotePeer& peer, uint32_t qpn);
  RemoteRequester* remote_requester_for(RemotePeer& peer, const wire::RequestHead& head);
  static void let_go(RemotePeer& peer, RemoteRequester& remote_requester);
  Qp* lock_requester(RemotePeer& peer, const wire::AnswerHead& head, bool* busy);
  void acknowledge(RemotePeer& peer);
  void lose(RemotePeer& peer);
  void bind(Route& route, const std::shared_ptr<RemotePeer>& peer);
  void serve_seeks(int64_t now);
  void find_peer(Route& route, int64_t now);
  void note_taken(const wire::NetAddress& to, bool taken);
  void request_connection(const wire::NetAddress& to, const wire::NetAddress& from,
                          const wire::Target& target, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer);
  std::shared_ptr<RemotePeer> peer_of(const wire::ProcessId& id);
  bool has_enough_of(const wire::EstablishedConnection& arrived) const;
  std::shared_ptr<RemotePeer> connected_to(const wire::NetAddress& address);
  void know(const wire::NetAddress& address, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer);
  void ask_now(const wire::NetAddress& address);
  bool send_waiting_datagrams(int64_t now);
  bool is_searched(const wire::NetAddress& to, uint32_t qpn) const;
  bool is_wanted(const wire::NetAddress& at, uint32_t qpn);
  void drop_waiting_datagrams(const wire::NetAddress& to, uint32_t qpn);
  static bool ask(RemotePeer& near, uint32_t qpn);
  void drop_unused_peers();
  void tell_of_receives();
  void publish();

  bool wait_for_service(std::unique_lock<std::timed_mutex>& progress_lock);
  int64_t check_deadlines(int64_t now);
  void keep_ticking();
  void arm(bool armed);
  bool is_left_lying();
  bool is_quicker_by_polling();
  bool waits_long();
  void flush_peers();

  Process& process_;
  RemoteGroups groups_{process_};
  const wire::ProcessId self_;
  const Connector connector_;
  int epoll_ = -1;                          // the sockets
  int outer_ = -1;                          // holds epoll_ while the service thread sees to them
  bool armed_ = false;                      // the service thread's, or under progress_mutex_
  std::atomic<int> polled_in_a_row_{0};     // turns of the service thread before which a program polled
  uint32_t taken_here_ = 0;                 // the service thread's: turns in which something came
  uint32_t taken_by_poll_before_ = 0;       // the service thread's
  std::atomic<uint32_t> taken_by_poll_{0};  // under progress_mutex_
  bool lay_ = false;                        // the service thread's
  int64_t served_at_ = 0;                   // ns, the service thread's
  uint32_t empty_polls_ = 0;                // under progress_mutex_: in a row, by programs
  int64_t empty_since_ = 0;                 // ns, under progress_mutex_
  std::atomic<bool> polled_{false};
  std::atomic<bool> asleep_{false};   // the service thread looks at the sockets
  std::atomic<int> progress_wanted_{0};   // by so many threads, which send what has gathered and then sleep
  std::atomic<bool> served_{false};   // the service thread has the turn
  std::atomic<uint32_t> in_vain_{0};  // polls in a row that found it so
  std::atomic<bool> active_{false};
  std::atomic<bool> seeking_{false};
  std::atomic<bool> datagrams_wait_{false};
  std::atomic<bool> receives_posted_{false};
  std::atomic<uint64_t> next_path_generation_{1};

  std::timed_mutex progress_mutex_;
  std::vector<std::shared_ptr<RemotePeer>> peers_;
  std::unordered_map<uint32_t, Route> routes_;  // by own number
  std::vector<ConnectRequest> connect_requests_;

  std::mutex known_mutex_;
  std::map<std::pair<wire::NetAddress, uint32_t>, std::weak_ptr<RemotePeer>>
      known_;  // who has a UD queue pair
  std::vector<WaitingDatagram> waiting_datagrams_;
  size_t waiting_bytes_ = 0;

  std::mutex seek_mutex_;
  std::vector<uint32_t> seeks_;
  std::mutex watch_mutex_;
  std::vector<Qp*> watched_;
  std::atomic<bool> ticking_{false};   // the service thread comes again within kLongestTick
  std::atomic<bool> lingered_{false};  // acknowledgements wait for the program's next turn
};

}  // namespace verbena
