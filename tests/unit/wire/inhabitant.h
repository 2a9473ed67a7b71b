// SPDX-License-Identifier: BSD-2-Clause
//
// Processes of nodes as far as the connection listener is concerned, and plain clients that connect to them.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "common/loopback.h"
#include "fabric/node_membership.h"
#include "unit/common/temporary_node.h"
#include "wire/connection_listener.h"

namespace verbena::wire {

inline int64_t seconds_from_now(int seconds) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t{t.tv_sec} + seconds) * 1'000'000'000 + t.tv_nsec;
}

inline DeviceTableOptions with_network(const NetAddress& address, uint8_t key = 1) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.addresses = {address.bytes};
  options.network.key.fill(key);
  return options;
}

// What a connection listener has reported.
class Told final : public ConnectionObserver {
 public:
  ~Told() {
    for (const EstablishedConnection& arrived : arrived_) close(arrived.fd);
  }
  void arrived(const EstablishedConnection& arrived) override {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(arrived);
    changed_.notify_all();
  }
  Refusal let_in(const EstablishedConnection& arriving, const std::function<bool()>& welcome) override {
    if (busy.load() == 0) return ConnectionObserver::let_in(arriving, welcome);
    busy.fetch_sub(1);
    return Refusal::kBusy;
  }
  void failed(uint64_t request_id, Refusal refusal) override {
    const std::lock_guard lock(mutex_);
    failed_.emplace_back(request_id, refusal);
    changed_.notify_all();
  }
  bool next(EstablishedConnection* out) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return taken_ < arrived_.size(); }))
      return false;
    *out = arrived_[taken_++];
    return true;
  }
  Refusal failure(uint64_t request_id) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return !failed_.empty() && failed_.back().first == request_id; };
    return changed_.wait_for(lock, std::chrono::seconds(20), there) ? failed_.back().second : Refusal::kNone;
  }
  std::atomic<int> busy{0};  // so many are told to try again
  size_t arrivals() {
    const std::lock_guard lock(mutex_);
    return arrived_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<EstablishedConnection> arrived_;
  size_t taken_ = 0;
  std::deque<std::pair<uint64_t, Refusal>> failed_;
};

// A process of a node, as far as the connection listener is concerned.
struct Inhabitant {
  explicit Inhabitant(const TemporaryNode& node) : Inhabitant(node.path()) {}
  explicit Inhabitant(const std::string& node) {
    EXPECT_EQ(membership.enter(node, &Inhabitant::serve, this), 0);
    error = connection_listener.open(membership, told, &problem);
    opened.store(error == 0);
    if (error == 0) membership.kick();
  }
  ~Inhabitant() {
    membership.leave();
    connection_listener.close();
  }
  static int64_t serve(void* self) {
    auto* here = static_cast<Inhabitant*>(self);
    if (!here->opened.load()) return -1;
    const int64_t next = here->connection_listener.serve();
    return next == INT64_MAX ? -1 : std::max<int64_t>(next - seconds_from_now(0), 0);
  }
  uint64_t call(const NetAddress& to, const Target& target = Target::any_process(), int seconds = 20) {
    return connection_listener.connect(to, {}, target, seconds_from_now(seconds));
  }

  NodeMembership membership;
  Told told;
  ConnectionListener connection_listener;
  std::string problem;
  int error = -1;
  std::atomic<bool> opened{false};
};

// A plain client.
class Stranger {
 public:
  explicit Stranger(const NetAddress& to) : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_storage where;
    const socklen_t size = to.to_socket_address(kDefaultPort, &where);
    const timeval patience{20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected = ::connect(fd, reinterpret_cast<sockaddr*>(&where), size) == 0;
  }
  ~Stranger() { close(fd); }
  void say(std::span<const uint8_t> bytes) const {
    [[maybe_unused]] const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Bytes of the answer until the connection is closed.
  size_t bytes_until_the_end() const {
    char buffer[4096];
    size_t sum = 0;
    for (ssize_t got; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;) sum += static_cast<size_t>(got);
    return sum;
  }
  int fd;
  bool connected = false;
};

}  // namespace verbena::wire
