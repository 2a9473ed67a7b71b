// SPDX-License-Identifier: BSD-2-Clause
//
// Peers with the key connect while strangers flood the listener with connections: over loopback, in a bounded
// number.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "common/loopback.h"
#include "unit/wire/inhabitant.h"
#include "wire/handshake.h"
#include "wire/incoming_table.h"

namespace verbena::wire {
namespace {

NetworkKey key_of_nodes() {
  NetworkKey key;
  key.fill(1);
  return key;
}

// More than there are places for.
constexpr size_t kMany = 2 * (IncomingTable::kMostSilent + IncomingTable::kMostGreeted);

// ---- one handshake, step by step, with many strangers between the steps ----

// A peer with the key, from an address of its own or that of plain clients.
class KeyHolder {
 public:
  KeyHolder(const NetAddress& from, const NetAddress& to)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
        handshake_(key_of_nodes(), {{77, 1, 1}, from, to, Target::any_process(), {}}) {
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_storage where;
    socklen_t size = from.to_socket_address(0, &where);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&where), size), 0);
    size = to.to_socket_address(kDefaultPort, &where);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&where), size), 0);
  }
  ~KeyHolder() { close(fd_); }
  KeyHolder(const KeyHolder&) = delete;
  KeyHolder& operator=(const KeyHolder&) = delete;

  bool is_challenged() {
    std::array<uint8_t, kChallengeSize> challenge;
    if (::send(fd_, handshake_.hello().data(), kHelloSize, MSG_NOSIGNAL) != ssize_t{kHelloSize}) return false;
    if (recv(fd_, challenge.data(), challenge.size(), MSG_WAITALL) != ssize_t{kChallengeSize}) return false;
    handshake_.challenge_arrived(challenge);
    return handshake_.step() == InitiatorHandshake::Step::kWelcome;
  }
  bool is_admitted() {
    std::array<uint8_t, kWelcomeSize> welcome;
    if (::send(fd_, handshake_.proof().data(), kProofSize, MSG_NOSIGNAL) != ssize_t{kProofSize}) return false;
    if (recv(fd_, welcome.data(), welcome.size(), MSG_WAITALL) != ssize_t{kWelcomeSize}) return false;
    handshake_.welcome_arrived(welcome);
    return handshake_.step() == InitiatorHandshake::Step::kDone;
  }

 private:
  const int fd_;
  InitiatorHandshake handshake_;
};

class ManyStrangers : public ::testing::Test {
 protected:
  // Connects many that say nothing, from 127.0.0.1, and waits until the listener has closed the first.
  void connect_many() {
    for (size_t i = 0; i < kMany; ++i) strangers_.push_back(std::make_unique<Stranger>(b_));
    ASSERT_EQ(strangers_.front()->bytes_until_the_end(), 0u);
  }
  const NetAddress a_ = loopback(2), b_ = loopback(3);
  TemporaryNode node_b_{with_network(b_)};
  Inhabitant there_{node_b_};
  std::vector<std::unique_ptr<Stranger>> strangers_;
};

NetAddress of_plain_clients() {
  NetAddress address;
  EXPECT_TRUE(NetAddress::from_text("127.0.0.1", &address));
  return address;
}

TEST_F(ManyStrangers, DoesNotDisplaceAPeerOfItsSourceThatHasGreeted) {
  KeyHolder peer(of_plain_clients(), b_);
  ASSERT_TRUE(peer.is_challenged());
  connect_many();
  EXPECT_TRUE(peer.is_admitted());
}

TEST_F(ManyStrangers, DoesNotDisplaceASilentPeerOfAnotherSource) {
  KeyHolder peer(a_, b_);
  connect_many();
  ASSERT_TRUE(peer.is_challenged());
  EXPECT_TRUE(peer.is_admitted());
}

TEST_F(ManyStrangers, ThatGreetsDoesNotDisplaceAPeerOfAnotherSource) {
  KeyHolder peer(a_, b_);
  ASSERT_TRUE(peer.is_challenged());
  std::vector<std::unique_ptr<KeyHolder>> others;
  for (size_t i = 0; i < kMany; ++i) {
    others.push_back(std::make_unique<KeyHolder>(of_plain_clients(), b_));
    ASSERT_TRUE(others.back()->is_challenged()) << i;
  }
  EXPECT_FALSE(others.front()->is_admitted()) << "its place was taken";
  EXPECT_TRUE(peer.is_admitted());
}

// ---- a flood ----

struct FloodRow {
  const char* name;
  bool from_the_peers_address, greets;
};
const FloodRow kFloodRows[] = {{"SilentFromElsewhere", false, false},
                               {"SilentFromThePeersAddress", true, false},
                               {"GreetingFromElsewhere", false, true},
                               {"GreetingFromThePeersAddress", true, true}};

// Connections at 5,000 per second, each open until a thousand more are; kInAll at most.
class Flooder {
 public:
  Flooder(const NetAddress& from, const NetAddress& to, bool greets)
      : from_(from), to_(to), greets_(greets), thread_([this] { run(); }) {}
  ~Flooder() {
    stop_ = true;
    thread_.join();
    for (const int fd : open_) close(fd);
  }
  Flooder(const Flooder&) = delete;
  Flooder& operator=(const Flooder&) = delete;
  size_t opened() const { return opened_; }

 private:
  static constexpr size_t kPerSecond = 5000, kInAll = 20'000, kOpen = 1000;

  void connect_one() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const linger at_once{1, 0};  // no connections left in TIME_WAIT
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    sockaddr_storage where;
    socklen_t size = from_.to_socket_address(0, &where);
    [[maybe_unused]] int done = bind(fd, reinterpret_cast<sockaddr*>(&where), size);
    size = to_.to_socket_address(kDefaultPort, &where);
    done = ::connect(fd, reinterpret_cast<sockaddr*>(&where), size);
    if (greets_) {
      const auto hello = encode({{78, 1, 1}, from_, to_, Target::any_process(), {}});
      [[maybe_unused]] const ssize_t sent =
          ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    open_.push_back(fd);
    if (open_.size() <= kOpen) return;
    close(open_.front());
    open_.pop_front();
  }
  void run() {
    const auto begin = std::chrono::steady_clock::now();
    while (!stop_ && opened_ < kInAll) {
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin;
      if (static_cast<double>(opened_) >= since.count() * kPerSecond) {
        poll(nullptr, 0, 1);
        continue;
      }
      connect_one();
      ++opened_;
    }
  }

  const NetAddress from_, to_;
  const bool greets_;
  std::deque<int> open_;
  std::atomic<size_t> opened_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Flood : public ::testing::TestWithParam<FloodRow> {};
INSTANTIATE_TEST_SUITE_P(OfStrangers, Flood, ::testing::ValuesIn(kFloodRows),
                         [](const auto& row) { return row.param.name; });

TEST_P(Flood, LeavesRoomForPeersWithTheKey) {
  constexpr size_t kPeers = 50, kBetween = 200;
  const NetAddress a = loopback(2), b = loopback(3);
  TemporaryNode node_a(with_network(a)), node_b(with_network(b));
  Inhabitant here(node_a), there(node_b);
  const Flooder flood(GetParam().from_the_peers_address ? a : loopback(9), b, GetParam().greets);
  std::vector<std::chrono::steady_clock::duration> took;
  for (size_t i = 1; i <= kPeers; ++i) {
    ASSERT_TRUE(eventually([&] { return flood.opened() >= i * kBetween; }));
    const auto begin = std::chrono::steady_clock::now();
    here.call(b);
    EstablishedConnection mine;
    ASSERT_TRUE(here.told.next(&mine)) << i;
    took.push_back(std::chrono::steady_clock::now() - begin);
  }
  // A request that finds no room is sent again after a second (tcp(7)). Some may meet a busy machine.
  std::nth_element(took.begin(), took.begin() + kPeers / 2, took.end());
  EXPECT_LT(took[kPeers / 2], std::chrono::seconds(1));
}

}  // namespace
}  // namespace verbena::wire
