// SPDX-License-Identifier: BSD-2-Clause
//
// Links between processes of two nodes: the connections between them come about in any order, and each frame
// arrives once.
#include "cm/link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "adapter/clock.h"
#include "fabric/fork_descriptors.h"

namespace verbena::cm {
namespace {

constexpr wire::NetAddress kLowAddress{{1}}, kHighAddress{{2}};

Frame numbered(uint32_t number) {
  Frame frame{};
  std::memcpy(frame.data(), &number, sizeof number);
  return frame;
}

// A process: its links, what they ask for, and what has arrived.
class LinkedProcess final : Watcher, LinkUser, wire::ConnectionRequests {
 public:
  explicit LinkedProcess(uint64_t node) : id_{node, 3, 1} { links_.go_out_by(*this, id_); }

  Links& links() { return links_; }
  wire::ProcessId id() const { return id_; }
  Peer as_peer() const { return {id_.slot, id_.generation, id_.node}; }

  struct Request {
    uint64_t id;
    wire::Target target;
  };
  std::vector<Request> requests;
  std::vector<uint32_t> numbers;  // of the frames that have arrived
  std::map<Peer, Peer> found;
  std::vector<Peer> lost;

  // Serves every descriptor that is ready. False: none is.
  bool serve() {
    std::vector<pollfd> descriptors;
    for (const auto& [fd, watched] : watched_)
      descriptors.push_back({fd, static_cast<short>(watched.for_room ? POLLIN | POLLOUT : POLLIN), 0});
    if (::poll(descriptors.data(), descriptors.size(), 0) <= 0) return false;
    for (const pollfd& each : descriptors)
      if (const auto watched = watched_.find(each.fd); each.revents != 0 && watched != watched_.end())
        links_.ready(watched->second.token);
    links_.carry();
    return true;
  }
  size_t connections() const { return watched_.size(); }

 private:
  struct Watched {
    uint64_t token;
    bool for_room;
  };

  void watch(int fd, uint64_t token, bool for_room) override { watched_[fd] = {token, for_room}; }
  void forget(int fd) override { watched_.erase(fd); }

  void frame_arrived(const Peer&, std::span<const uint8_t> frame) override {
    uint32_t number;
    std::memcpy(&number, frame.data(), sizeof number);
    numbers.push_back(number);
  }
  void peer_lost(const Peer& peer) override { lost.push_back(peer); }
  void peer_found(const Peer& before, const Peer& peer) override { found[before] = peer; }
  void nobody_there(const Peer&, std::span<const uint8_t>) override {}
  bool is_of_interest(const Peer&) const override { return true; }

  uint64_t connect(const wire::NetAddress&, const wire::NetAddress&, const wire::Target& target,
                   int64_t) override {
    requests.push_back({++last_request_, target});
    return last_request_;
  }
  void cancel(uint64_t request_id) override {
    std::erase_if(requests, [&](const Request& request) { return request.id == request_id; });
  }

  const wire::ProcessId id_;
  uint64_t last_request_ = 0;
  std::map<int, Watched> watched_;
  AlarmClock clock_{now_ns};
  Links links_{*this, *this, clock_, 0};
};

// Until no descriptor is ready: a process with nothing to do sleeps.
void serve_until_quiet(LinkedProcess& one, LinkedProcess& other) {
  for (int quiet = 0, rounds = 0; quiet < 2; ++rounds) {
    quiet = one.serve() | other.serve() ? 0 : quiet + 1;
    ASSERT_LT(rounds, 100000) << "a descriptor stays ready";
  }
}

struct LinksBetweenNodes : ::testing::Test {
  LinkedProcess low{1}, high{2};

  // A connection that is established: each end learns of it when it is told.
  struct Made {
    LinkedProcess *from, *to;
    uint64_t request_id;
    int ends[2];  // -1: told
  };

  static Made make(LinkedProcess& from, LinkedProcess& to, uint64_t request_id) {
    Made made{&from, &to, request_id, {-1, -1}};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.ends), 0);
    const int little = 4096;
    for (const int fd : made.ends) {
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
      keep_from_children(fd);
    }
    return made;
  }
  static void tell(Made& made, bool initiator) {
    const LinkedProcess& peer = initiator ? *made.to : *made.from;
    const int fd = std::exchange(made.ends[initiator ? 0 : 1], -1);
    (initiator ? made.from : made.to)
        ->links()
        .arrived({fd, peer.id(), kHighAddress, kLowAddress, wire::Target::cm_listener(7), initiator,
                  initiator ? made.request_id : 0});
  }
  // The known process behind the peer that connect() returned.
  static Peer current(const LinkedProcess& process, const Peer& peer) {
    const auto known = process.found.find(peer);
    return known == process.found.end() ? peer : known->second;
  }
  void settle() { serve_until_quiet(low, high); }
};

TEST_F(LinksBetweenNodes, AFrameOnTheConnectionThatTheOtherEndGivesUpArrives) {
  const Peer first = low.links().connect(kHighAddress, kLowAddress, 7);
  const Peer second = low.links().connect(kHighAddress, kLowAddress, 7);
  Made one = make(low, high, 1), two = make(low, high, 2);
  tell(two, false);  // the other end has the second one first, and sends on it
  tell(one, false);
  tell(one, true);
  high.links().send(low.as_peer(), numbered(1));
  tell(two, true);
  high.links().send(low.as_peer(), numbered(2));
  settle();
  high.links().send(low.as_peer(), numbered(3));
  low.links().send(current(low, first), numbered(4));
  low.links().send(current(low, second), numbered(5));
  settle();
  EXPECT_EQ(low.numbers, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(high.numbers, (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(low.connections(), 1u);
  EXPECT_EQ(high.connections(), 1u);
  EXPECT_TRUE(high.requests.empty()) << "the peer was not lost";
}

TEST_F(LinksBetweenNodes, BothProcessesConnectAgainAtTheSameTime) {
  low.links().connect(kHighAddress, kLowAddress, 7);
  Made one = make(low, high, 1);
  const int ends[] = {one.ends[0], one.ends[1]};
  tell(one, false);
  tell(one, true);
  for (const int fd : ends) shutdown(fd, SHUT_RDWR);
  settle();
  ASSERT_EQ(low.requests.size(), 2u);
  ASSERT_EQ(high.requests.size(), 1u);
  low.links().send(high.as_peer(), numbered(4));  // waits
  Made two = make(low, high, 2), three = make(high, low, 1);
  tell(two, false);
  high.links().send(low.as_peer(), numbered(1));
  tell(three, false);
  EXPECT_EQ(low.requests.size(), 2u)
      << "the request has been withdrawn, and the other end may use its connection";
  tell(two, true);
  tell(three, true);
  settle();
  EXPECT_EQ(low.numbers, (std::vector<uint32_t>{1}));
  EXPECT_EQ(high.numbers, (std::vector<uint32_t>{4}));
  EXPECT_EQ(low.connections(), 1u);
  EXPECT_EQ(high.connections(), 1u);
  EXPECT_TRUE(low.lost.empty() && high.lost.empty());
}

// Every process begins connections, and both learn of them in any order, while frames are sent.
TEST_F(LinksBetweenNodes, EachFrameArrivesOnceInWhateverOrderConnectionsComeAbout) {
  for (uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 draw(seed);
    LinkedProcess a(1), b(2);
    LinkedProcess* const processes[] = {&a, &b};
    std::vector<Peer> peers[2];
    std::vector<uint32_t> sent[2];
    std::vector<Made> made;
    size_t taken[2] = {};  // requests that have become connections
    uint32_t number = 0;
    const auto step = [&](bool begins) {
      const size_t one = draw() % 2;
      LinkedProcess &here = *processes[one], &there = *processes[1 - one];
      switch (draw() % 5) {
        case 0:
          if (begins && peers[one].size() < 3)
            peers[one].push_back(here.links().connect(kHighAddress, kLowAddress, 7));
          break;
        case 1:
          if (taken[one] < here.requests.size())
            made.push_back(make(here, there, here.requests[taken[one]++].id));
          break;
        case 2:
          if (!made.empty()) {
            Made& each = made[draw() % made.size()];
            const bool initiator = draw() % 2;
            if (each.ends[initiator ? 0 : 1] >= 0) tell(each, initiator);
          }
          break;
        case 3:
          if (!peers[one].empty())
            for (uint32_t i = draw() % 8; i > 0; --i) {
              const Peer& to = peers[one][draw() % peers[one].size()];
              here.links().send(current(here, to), numbered(++number));
              sent[one].push_back(number);
            }
          break;
        default:
          here.serve();
      }
    };
    for (int i = 0; i < 120; ++i) step(true);
    const auto to_do = [&] {
      return taken[0] < a.requests.size() || taken[1] < b.requests.size() ||
             std::any_of(made.begin(), made.end(),
                         [](const Made& each) { return each.ends[0] >= 0 || each.ends[1] >= 0; });
    };
    for (int i = 0; to_do() && i < 10000; ++i) step(false);
    ASSERT_NO_FATAL_FAILURE(serve_until_quiet(a, b));
    std::sort(a.numbers.begin(), a.numbers.end());
    std::sort(b.numbers.begin(), b.numbers.end());
    ASSERT_EQ(b.numbers, sent[0]);
    ASSERT_EQ(a.numbers, sent[1]);
    ASSERT_TRUE(a.lost.empty() && b.lost.empty());
    ASSERT_LE(a.connections(), 2u);
    ASSERT_EQ(a.connections(), b.connections());
  }
}

}  // namespace
}  // namespace verbena::cm
