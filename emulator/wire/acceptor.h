// SPDX-License-Identifier: BSD-2-Clause
//
// The implementation of the connection listener (connection_listener.h). Only the service thread uses the
// sockets. `mutex_` and `cm_mutex_` guard what other threads leave for the service thread, and what it
// reports to them.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "wire/connection_listener.h"
#include "wire/incoming.h"
#include "wire/outgoing.h"

namespace verbena::wire {

class Acceptor {
 public:
  Acceptor(NodeMembership& membership, ConnectionObserver& observer)
      : membership_(membership), data_(observer) {}
  ~Acceptor();

  int open(std::string* problem);
  int descriptor() const { return epoll_fd_; }
  int64_t serve();
  uint64_t connect(const NetAddress& to, const NetAddress& from, const Target& target, int64_t deadline_ns);
  void cancel(uint64_t request_id);
  void receive_for_cm(ConnectionObserver* observer);
  ProcessId self() const { return self_; }

  static std::atomic<ConnectionListener::FindListener> find_listener;

  static constexpr size_t kMaxIncoming = 64;
  static constexpr int64_t kIncomingPatience = 5'000'000'000;

 private:
  struct Listener {
    int fd;
    NetAddress address;
    int64_t resume_ns;  // 0: watched; else not watched until then, because no descriptors are left
  };

  void watch(int fd, uint64_t token, uint32_t events);
  void accept_all(Listener& listener, int64_t now);
  void serve_incoming(uint64_t token, Incoming& incoming);
  void admit(const Admitted& admitted, int fd, const NetAddress& peer);
  Refusal find_owner(const Hello& hello, uint32_t* slot, uint32_t* generation) const;
  void let_in(const Admitted& admitted, int fd);
  void greet(const Admitted& admitted, int fd);
  void refuse(const Admitted& admitted, int fd, const NetAddress& peer, Refusal refusal);
  void take_passed_connections();
  void look_at_addresses(int64_t now);
  void begin_requests();
  bool serve_outgoing(uint64_t token, Outgoing& outgoing, int64_t now, bool ready);  // false: it is over
  void finish_outgoing(Outgoing& outgoing, Outgoing::State state);
  bool forget_request(uint64_t request_id);
  template <typename Tell>
  bool tell(const Target& target, Tell&& tell_them);
  void note(const NetAddress& peer, Refusal refusal, uint32_t their_version, const char* doing);

  NodeMembership& membership_;
  ConnectionObserver& data_;
  std::mutex cm_mutex_;  // held while the connection manager is told
  ConnectionObserver* cm_ = nullptr;

  ProcessId self_;
  NetworkKey key_{};
  uint16_t port_ = 0;
  std::vector<NetAddress> own_;
  std::vector<Listener> listeners_;
  int epoll_fd_ = -1;
  int passed_connections_ = -1;
  int addresses_ = -1;  // address_watch.h
  // When to check the addresses next. At first: at once, because they may have changed before this process
  // started.
  int64_t look_at_addresses_ns_ = 0;

  uint64_t next_token_ = 0;
  std::map<uint64_t, std::unique_ptr<Incoming>> incoming_;  // the oldest first
  std::map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;

  std::mutex mutex_;
  std::deque<Outgoing::ConnectRequest> asked_;  // not begun yet
  std::set<uint64_t> unfinished_;        // those that have an end to be told
  uint64_t next_request_id_ = 1;

  int64_t noted_ns_ = 0;
  uint32_t unnoted_ = 0;
};

}  // namespace verbena::wire
