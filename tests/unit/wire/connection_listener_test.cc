// SPDX-License-Identifier: BSD-2-Clause
//
// Connection listeners of several nodes in one process, at loopback addresses chosen by this test's pid.
#include "wire/connection_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "common/loopback.h"
#include "fabric/fork_descriptors.h"
#include "fabric/node_membership.h"
#include "unit/common/child.h"
#include "unit/common/temporary_node.h"
#include "unit/wire/inhabitant.h"
#include "wire/handshake.h"
#include "wire/incoming_table.h"
#include "wire/listening.h"
#include "wire/port_claim.h"

namespace verbena::wire {
namespace {

using namespace std::chrono_literals;

class ConnectionListenerTest : public ::testing::Test {
 protected:
  const NetAddress a_ = loopback(2), b_ = loopback(3);
  TemporaryNode node_a_{with_network(a_)}, node_b_{with_network(b_)};
};

bool passes(int from, int to) {
  const char sent = 'x';
  char got = 0;
  if (send(from, &sent, 1, MSG_NOSIGNAL) != 1) return false;
  pollfd readable{to, POLLIN, 0};
  return poll(&readable, 1, 20000) == 1 && recv(to, &got, 1, MSG_DONTWAIT) == 1 && got == sent;
}

TEST_F(ConnectionListenerTest, StaysShutWithoutANetwork) {
  const TemporaryNode plain(DeviceTableOptions{});
  Inhabitant here(plain);
  EXPECT_EQ(here.error, ENONET);
  EXPECT_FALSE(here.connection_listener.is_open());
}

TEST_F(ConnectionListenerTest, ConnectsTwoNodes) {
  Inhabitant here(node_a_), there(node_b_);
  ASSERT_EQ(here.error, 0) << here.problem;
  const uint64_t request_id = here.call(b_);
  EstablishedConnection mine, theirs;
  ASSERT_TRUE(here.told.next(&mine));
  ASSERT_TRUE(there.told.next(&theirs));
  EXPECT_TRUE(mine.begun_here);
  EXPECT_EQ(mine.request_id, request_id);
  EXPECT_EQ(mine.peer, there.connection_listener.self());
  EXPECT_EQ(theirs.peer, here.connection_listener.self());
  EXPECT_EQ(theirs.peer_address, a_);
  EXPECT_EQ(theirs.own_address, b_);
  EXPECT_TRUE(passes(mine.fd, theirs.fd));
  EXPECT_TRUE(passes(theirs.fd, mine.fd));
}

TEST_F(ConnectionListenerTest, TakesIpv6) {
  NetAddress six;
  ASSERT_TRUE(NetAddress::from_text("::1", &six));
  if (std::string problem; could_listen_at(six, kDefaultPort, false, &problem) != 0) GTEST_SKIP() << problem;
  const TemporaryNode node(with_network(six));
  Inhabitant there(node);
  ASSERT_EQ(there.error, 0) << there.problem;
  // Of the same machine and family, as there is but one such address: from ::1 to ::1, between two nodes.
  Inhabitant here(node_a_);
  here.connection_listener.connect(six, six, Target::any_process(), seconds_from_now(20));
  EstablishedConnection theirs;
  ASSERT_TRUE(there.told.next(&theirs));
  EXPECT_EQ(theirs.own_address, six);
}

TEST_F(ConnectionListenerTest, LeadsToTheProcessThatHasTheQueuePair) {
  Inhabitant here(node_a_);
  std::vector<std::unique_ptr<Inhabitant>> others;
  for (int i = 0; i < 4; ++i) others.push_back(std::make_unique<Inhabitant>(node_b_));
  for (const auto& other : others) {
    const uint32_t qpn = other->membership.directory().claim_qpn(other->membership.slot(), 1);
    for (int i = 0; i < 4; ++i) {  // the kernel gives it to any of the four
      here.call(b_, Target::queue_pair(qpn));
      EstablishedConnection mine, theirs;
      ASSERT_TRUE(here.told.next(&mine));
      ASSERT_TRUE(other->told.next(&theirs));
      EXPECT_EQ(mine.peer, other->connection_listener.self());
      EXPECT_EQ(theirs.target, Target::queue_pair(qpn));
      EXPECT_TRUE(passes(mine.fd, theirs.fd));
    }
  }
}

TEST_F(ConnectionListenerTest, LeadsToAProcessByItsName) {
  Inhabitant here(node_a_), there(node_b_), bystander(node_b_);
  here.call(b_, Target::of_process(there.connection_listener.self()));
  EstablishedConnection theirs;
  ASSERT_TRUE(there.told.next(&theirs));
  EXPECT_EQ(theirs.peer, here.connection_listener.self());
}

TEST_F(ConnectionListenerTest, ComesAgainWhenItIsToldTo) {
  Inhabitant here(node_a_), there(node_b_);
  there.told.busy.store(2);
  const uint64_t request_id = here.call(b_);
  EstablishedConnection mine, theirs;
  ASSERT_TRUE(here.told.next(&mine));
  ASSERT_TRUE(there.told.next(&theirs));
  EXPECT_EQ(mine.request_id, request_id);
  EXPECT_EQ(there.told.busy.load(), 0);
  EXPECT_EQ(there.told.arrivals(), 1u);
  EXPECT_TRUE(passes(mine.fd, theirs.fd));
}

TEST_F(ConnectionListenerTest, SaysThatNobodyHasTheNumber) {
  Inhabitant here(node_a_), there(node_b_);
  EXPECT_EQ(here.told.failure(here.call(b_, Target::queue_pair(0x123456))), Refusal::kNobody);
}

TEST_F(ConnectionListenerTest, DoesNotLeadToASuccessorInTheSameSlot) {
  Inhabitant here(node_a_), there(node_b_);
  ProcessId former = there.connection_listener.self();
  ++former.generation;
  EXPECT_EQ(here.told.failure(here.call(b_, Target::of_process(former))), Refusal::kNobody);
  former = there.connection_listener.self();
  former.node ^= 1;
  EXPECT_EQ(here.told.failure(here.call(b_, Target::of_process(former))), Refusal::kNobody);
}

TEST_F(ConnectionListenerTest, RefusesAPeerWithAnotherKey) {
  const TemporaryNode stranger(with_network(loopback(4), 2));
  Inhabitant here(stranger), there(node_b_);
  EXPECT_EQ(here.told.failure(here.call(b_)), Refusal::kKey);
  EXPECT_EQ(there.told.arrivals(), 0u);
}

TEST_F(ConnectionListenerTest, GivesUpWhereNobodyListens) {
  Inhabitant here(node_a_);
  EXPECT_EQ(here.told.failure(here.call(loopback(9), Target::any_process(), 0)), Refusal::kNotListening);
}

TEST_F(ConnectionListenerTest, WaitsForAListenerThatStartsLater) {
  Inhabitant here(node_a_);
  here.call(b_);
  ASSERT_TRUE(eventually([&] { return here.told.arrivals() == 0; }));
  Inhabitant there(node_b_);
  EstablishedConnection theirs;
  EXPECT_TRUE(there.told.next(&theirs));
}

TEST_F(ConnectionListenerTest, PassesByAListenerThatIsStopped) {
  Child stopped([&](const Child& self) {
    Inhabitant other(node_b_);
    self.tell(other.error == 0 ? 'y' : 'n');
    return self.hear();
  });
  Inhabitant here(node_a_), there(node_b_);
  ASSERT_EQ(stopped.answer(), 'y');
  stopped.stop();
  const uint32_t qpn = there.membership.directory().claim_qpn(there.membership.slot(), 1);
  for (int i = 0; i < 8; ++i) {
    here.call(b_, Target::queue_pair(qpn));
    EstablishedConnection theirs;
    ASSERT_TRUE(there.told.next(&theirs)) << i;
  }
}

TEST_F(ConnectionListenerTest, HasNobodyElseUnderItsAddress) {
  Inhabitant here(node_a_);
  std::string problem;
  PortClaim another;
  EXPECT_EQ(another.take(a_, kDefaultPort, {12345, 1, 1}, &problem), EADDRINUSE);
  EXPECT_NE(problem.find("process " + std::to_string(getpid())), std::string::npos) << problem;
}

TEST_F(ConnectionListenerTest, LeavesItsAddressToOthersWhenTheyHaveGone) {
  { Inhabitant here(node_a_); }
  std::string problem;
  PortClaim another;
  EXPECT_EQ(another.take(a_, kDefaultPort, {12345, 1, 1}, &problem), 0) << problem;
}

TEST_F(ConnectionListenerTest, IsNotOpenedBesideANodeInAnotherFolder) {
  Inhabitant here(node_a_);
  std::string problem;
  EXPECT_EQ(could_listen_at(a_, kDefaultPort, true, &problem), EADDRINUSE);
  EXPECT_EQ(could_listen_at(a_, kDefaultPort, false, &problem), 0);
}

TEST_F(ConnectionListenerTest, SaysThatAPortIsTaken) {
  sockaddr_storage where;
  const socklen_t size = a_.to_socket_address(kDefaultPort, &where);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&where), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  std::string problem;
  EXPECT_EQ(could_listen_at(a_, kDefaultPort, false, &problem), EADDRINUSE);
  EXPECT_NE(problem.find("--port"), std::string::npos) << problem;
  close(fd);
}

TEST_F(ConnectionListenerTest, HangsUpOnNoise) {
  Inhabitant there(node_b_);
  const Stranger stranger(b_);
  ASSERT_TRUE(stranger.connected);
  stranger.say(std::array<uint8_t, 300>{1, 2, 3});
  EXPECT_LE(stranger.bytes_until_the_end(), kChallengeSize);
}

TEST_F(ConnectionListenerTest, HoldsABoundedNumberOfStrangersThatSayNothing) {
  Inhabitant here(node_a_), there(node_b_);
  std::vector<std::unique_ptr<Stranger>> silent;
  for (size_t i = 0; i < 2 * IncomingTable::kMostSilent; ++i)
    silent.push_back(std::make_unique<Stranger>(b_));
  // The oldest connections are closed, and a peer that can show the key is admitted.
  EXPECT_EQ(silent.front()->bytes_until_the_end(), 0u);
  here.call(b_);
  EstablishedConnection theirs;
  EXPECT_TRUE(there.told.next(&theirs));
}

TEST_F(ConnectionListenerTest, LosesPatienceWithTheSlow) {
  Inhabitant there(node_b_);
  const Stranger slow(b_);
  slow.say(std::array<uint8_t, 1>{'V'});
  EXPECT_EQ(slow.bytes_until_the_end(), 0u);
}

TEST_F(ConnectionListenerTest, IsNotKeptOpenByAForkedChild) {
  auto there = std::make_unique<Inhabitant>(node_b_);
  Child child([&](const Child& self) {
    close_parent_descriptors();
    self.tell('y');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'y');
  there.reset();
  EXPECT_FALSE(Stranger(b_).connected);
}

TEST_F(ConnectionListenerTest, CancelsARequest) {
  Inhabitant here(node_a_);
  here.connection_listener.cancel(here.call(b_));
  Inhabitant there(node_b_);
  const uint64_t request_id = here.call(b_, Target::queue_pair(0x123456));
  EXPECT_EQ(here.told.failure(request_id), Refusal::kNobody);
  EXPECT_EQ(here.told.arrivals(), 0u);
}

TEST_F(ConnectionListenerTest, TellsTheConnectionManagerWhatIsIts) {
  Inhabitant here(node_a_), there(node_b_);
  const Target target = Target::cm_of_process(there.connection_listener.self());
  Told cm_here, cm_there;
  here.connection_listener.receive_for_cm(&cm_here);
  EXPECT_EQ(cm_here.failure(here.call(b_, target)), Refusal::kNobody);
  there.connection_listener.receive_for_cm(&cm_there);
  here.call(b_, target);
  EstablishedConnection mine, theirs;
  EXPECT_TRUE(cm_here.next(&mine));
  EXPECT_TRUE(cm_there.next(&theirs));
  here.connection_listener.receive_for_cm(nullptr);
  there.connection_listener.receive_for_cm(nullptr);
}

}  // namespace
}  // namespace verbena::wire
