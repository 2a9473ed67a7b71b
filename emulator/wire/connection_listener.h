// SPDX-License-Identifier: BSD-2-Clause
//
// The connection listener of a process on a node that has a network. It accepts connections from processes of
// other nodes that can prove the fabric's key, and it connects to them. The result is a connected,
// authenticated, non-blocking TCP socket. The listener does not look at the bytes that follow.
//
// Each process listens itself, at the same addresses and port as the others of its node (SO_REUSEPORT,
// socket(7)). The process that the kernel gives a connection to
// - does the handshake (handshake.h),
// - looks up the process that the connection is for,
// - passes the connection to that process, to a service of its socket (connection_passing.h).
//
// Threads:
// - open() and close(): the thread that creates and ends the process's adapter, while the service thread does
//   not run serve().
// - serve(): the service thread alone.
// - connect() and cancel(): any thread.
// Observers are called from serve(), without a lock of the listener held: they may call connect().
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fabric/service_inbox.h"
#include "wire/connection_requests.h"
#include "wire/established_connection.h"
#include "wire/incoming_table.h"
#include "wire/outgoing.h"

namespace verbena {
class NodeDirectory;
class NodeMembership;
}  // namespace verbena

namespace verbena::wire {

class ConnectionListener final : public ConnectionRequests {
 public:
  ConnectionListener() = default;
  ~ConnectionListener() { close(); }
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

  // Listens at the addresses of the membership's node. Both arguments must outlive the listener. 0, or an
  // errno and *problem with the reason in one line:
  // - ENONET: the node has no network; nothing is opened.
  // - EADDRINUSE: another program or node has the port.
  // - EPERM, ENOENT, EINVAL: the node's key cannot be used.
  // - Other errno: an error of the kernel.
  int open(NodeMembership& membership, ConnectionObserver& observer, std::string* problem);
  bool is_open() const { return is_open_; }

  // Sets the observer of connections for the connection manager (is_for_cm()). nullptr: none; after return
  // the former one is not called any more. While there is none, such connections are refused. Any thread, but
  // not from within an observer, and not with a lock that an observer takes.
  void receive_for_cm(ConnectionObserver* observer);

  // Finds the process of the node that listens for a service at an address: its slot, or false. The
  // connection manager provides the function, for all listeners. Set it before any listener is opened.
  using FindListener = bool (*)(const NodeDirectory& directory, const std::string& node, const NetAddress& to,
                                uint64_t service, uint32_t* slot);
  static void find_listeners_by(FindListener find) { find_listener.store(find, std::memory_order_release); }

  // Readable whenever serve() has work; -1 while the listener is not open. open() lets the service thread
  // watch it (NodeMembership::watch).
  int descriptor() const { return epoll_fd_; }

  // Does all work that is due; never blocks. Returns when it must be called again at the latest
  // (CLOCK_MONOTONIC, ns). kEndOfTime (adapter/clock.h): when the descriptor is readable.
  int64_t serve();

  // ConnectionRequests. Any thread.
  uint64_t connect(const NetAddress& to, const NetAddress& from, const Target& target,
                   int64_t deadline_ns) override;
  void cancel(uint64_t request_id) override;

  // Stops listening, closes unfinished connections and drops all requests. Idempotent.
  void close();

  // The id of this process; nobody's while the listener is not open.
  ProcessId self() const { return self_; }

  // Each handshake of a process that connects has so much time, ns. incoming_table.h limits their number.
  static constexpr int64_t kIncomingPatience = 5'000'000'000;

 private:
  inline static std::atomic<FindListener> find_listener{nullptr};

  struct Listener {
    int fd;
    NetAddress address;
    int64_t resume_ns;  // 0: watched; else not watched until then, because no descriptors are left
  };

  int begin(std::string* problem);
  void watch(int fd, uint64_t token, uint32_t events);
  void accept_all(Listener& listener, int64_t now);
  void serve_incoming(uint64_t token, Incoming& incoming);
  void admit(const Admitted& admitted, int fd, const NetAddress& peer);
  Refusal find_owner(const Hello& hello, uint32_t* slot, uint32_t* generation) const;
  void let_in(const Admitted& admitted, int fd);
  void greet(const Admitted& admitted, int fd);
  void refuse(const Admitted& admitted, int fd, const NetAddress& peer, Refusal refusal);
  void turn_away(const Admitted& admitted, int fd,
                 Refusal refusal);  // as refuse(), without a line in the log
  void take_passed_connections();
  void look_at_addresses(int64_t now);
  void begin_requests();
  bool serve_outgoing(uint64_t token, Outgoing& outgoing, int64_t now, bool ready);  // false: it is over
  void finish_outgoing(Outgoing& outgoing, Outgoing::State state);
  bool forget_request(uint64_t request_id);
  template <typename Tell>
  bool tell(const Target& target, Tell&& tell_them);
  void note(const NetAddress& peer, Refusal refusal, uint32_t their_version, const char* doing);

  bool is_open_ = false;
  NodeMembership* membership_ = nullptr;
  ConnectionObserver* data_ = nullptr;
  // Only the service thread uses the sockets. The two mutexes guard what other threads leave for it, and what
  // it reports.
  std::mutex cm_mutex_;  // held while the connection manager is told
  ConnectionObserver* cm_ = nullptr;

  ProcessId self_;
  NetworkKey key_{};
  uint16_t port_ = 0;
  std::vector<NetAddress> own_;
  std::vector<Listener> listeners_;
  std::vector<int> claims_;  // port_claim.h, one for each listener
  int epoll_fd_ = -1;
  ServiceInbox passed_connections_;
  int addresses_ = -1;  // address_watch.h
  // When to check the addresses next. At first: at once, because they may have changed before this process
  // started.
  int64_t look_at_addresses_ns_ = 0;

  uint64_t next_token_ = 0;
  IncomingTable incoming_;
  std::map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;

  std::mutex mutex_;
  std::deque<Outgoing::ConnectRequest> asked_;  // not begun yet
  std::set<uint64_t> unfinished_;               // those that have an end to be told
  uint64_t next_request_id_ = 1;

  int64_t noted_ns_ = 0;
  uint32_t unnoted_ = 0;
};

}  // namespace verbena::wire
