// SPDX-License-Identifier: BSD-2-Clause
//
// The inside of the gate (gate.h). Sockets are the service thread's alone; what other threads leave for it,
// and what it tells them, is guarded by `mutex_` and `cm_mutex_`.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "wire/gate.h"
#include "wire/incoming.h"
#include "wire/outgoing.h"

namespace verbena::wire {

class Doorkeeper {
 public:
  Doorkeeper(Residence& home, Arrivals& arrivals) : home_(home), data_(arrivals) {}
  ~Doorkeeper();

  int open(std::string* problem);
  int descriptor() const { return epoll_fd_; }
  int64_t serve();
  uint64_t approach(const NetAddress& to, const NetAddress& from, const Target& target, int64_t deadline_ns);
  void cancel(uint64_t ticket);
  void receive_for_cm(Arrivals* arrivals);
  ProcessId self() const { return self_; }

  static std::atomic<Gate::FindListener> find_listener;

  static constexpr size_t kMaxIncoming = 64;
  static constexpr int64_t kIncomingPatience = 5'000'000'000;

 private:
  struct Listener {
    int fd;
    NetAddress address;
    int64_t resume_ns;  // 0: watched; else it is not, until then: no descriptors are left
  };

  void watch(int fd, uint64_t token, uint32_t events);
  void accept_all(Listener& listener, int64_t now);
  void serve_incoming(uint64_t token, Incoming& incoming);
  void admit(const Admitted& admitted, int fd, const NetAddress& peer);
  Refusal find_owner(const Hello& hello, uint32_t* slot, uint32_t* generation) const;
  void let_in(const Admitted& admitted, int fd);
  void greet(const Admitted& admitted, int fd);
  void refuse(const Admitted& admitted, int fd, const NetAddress& peer, Refusal refusal);
  void take_handed_on();
  void look_at_addresses(int64_t now);
  void begin_calls();
  bool serve_call(uint64_t token, Outgoing& call, int64_t now, bool ready);  // false: it is over
  void finish_call(Outgoing& call, Outgoing::State state);
  bool forget_ticket(uint64_t ticket);
  template <typename Tell>
  bool tell(const Target& target, Tell&& tell_them);
  void note(const NetAddress& peer, Refusal refusal, uint32_t their_version, const char* doing);

  Residence& home_;
  Arrivals& data_;
  std::mutex cm_mutex_;  // held while the connection manager is told
  Arrivals* cm_ = nullptr;

  ProcessId self_;
  NetworkKey key_{};
  uint16_t port_ = 0;
  std::vector<NetAddress> own_;
  std::vector<Listener> listeners_;
  int epoll_fd_ = -1;
  int callers_ = -1;
  int addresses_ = -1;  // address_watch.h
  // When they are looked at: at once, as they may have changed while nobody was here.
  int64_t look_at_addresses_ns_ = 0;

  uint64_t next_token_ = 0;
  std::map<uint64_t, std::unique_ptr<Incoming>> incoming_;  // the oldest first
  std::map<uint64_t, std::unique_ptr<Outgoing>> outgoing_;

  std::mutex mutex_;
  std::deque<Outgoing::Call> asked_;  // not begun yet
  std::set<uint64_t> tickets_;        // those that have an end to be told
  uint64_t next_ticket_ = 1;

  int64_t noted_ns_ = 0;
  uint32_t unnoted_ = 0;
};

}  // namespace verbena::wire
