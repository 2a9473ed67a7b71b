// SPDX-License-Identifier: BSD-2-Clause
//
// Identifiers of two nodes: the loopback's addresses 127.x.y.2 and 127.x.y.3, chosen by this test's pid.
#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "unit/cm/server.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

constexpr uint16_t kNobodysPort = 7472;

std::string address(int last) {
  return "127." + std::to_string(1 + getpid() / 256 % 127) + "." + std::to_string(getpid() % 256) + "." +
         std::to_string(last);
}

DeviceTableOptions with_network(const std::string& text) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.key.fill(5);
  std::array<uint8_t, 16> gid{};
  gid[10] = gid[11] = 0xff;
  inet_pton(AF_INET, text.c_str(), &gid[12]);
  options.network.addresses = {gid};
  return options;
}

struct NodesOf : ::testing::Test {
  explicit NodesOf(PortSpace given)
      : space(given), there(with_network(theirs)), here(with_network(ours)), server([&](const Child& child) {
          setenv(kNodeVariable, there.path().c_str(), 1);
          return serve(child, space);
        }) {}

  void SetUp() override {
    ASSERT_EQ(server.answer(), 'L');
    service = std::make_unique<ServiceHolder>();
    id = make_resolved(*service, inbox, kServerPort, space, theirs.c_str());
  }
  void TearDown() override { id.reset(); }
  void tell(char word) {
    server.command(word);
    ASSERT_EQ(server.answer(), 'y') << word;
  }
  void request() {
    ASSERT_EQ(connect(id.get(), parameters(0x11, "hello"), {}), 0);
    tell('r');
  }
  void establish() {
    request();
    tell('a');
    ASSERT_TRUE(next_is(inbox, EventType::kConnectResponse));
    ASSERT_EQ(accept(id.get(), nullptr, {}), 0);
    tell('e');
  }

  const PortSpace space;
  const std::string ours = address(2), theirs = address(3);
  TemporaryNode there, here;
  Child server;
  std::unique_ptr<ServiceHolder> service;
  Inbox inbox;
  OwnedId id;
};

struct ConnectedNodes : NodesOf {
  ConnectedNodes() : NodesOf(PortSpace::kTcp) {}
};
struct DatagramNodes : NodesOf {
  DatagramNodes() : NodesOf(PortSpace::kUdp) {}
};

TEST_F(ConnectedNodes, KnowTheWayByTheirAddresses) {
  Route route;
  query(id.get(), &route);
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(route.source).sin_addr, text, sizeof text);
  EXPECT_EQ(text, ours);
  inet_ntop(AF_INET, &route.destination_gid.raw[12], text, sizeof text);
  EXPECT_EQ(text, theirs);
}

TEST_F(ConnectedNodes, ConnectAndPart) {
  establish();
  ASSERT_EQ(disconnect(id.get()), 0);
  tell('d');
  tell('D');
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(ConnectedNodes, ConnectTwiceOverOneLink) {
  establish();
  const OwnedId second = make_resolved(*service, inbox, kServerPort, space, theirs.c_str());
  ASSERT_EQ(connect(second.get(), parameters(0x12), {}), 0);
  tell('r');  // and gives up the first one
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
  tell('x');
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(ConnectedNodes, AreRejected) {
  request();
  tell('x');
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(ConnectedNodes, AreRejectedWhereNobodyListens) {
  const OwnedId other = make_resolved(*service, inbox, kNobodysPort, space, theirs.c_str());
  ASSERT_EQ(connect(other.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 8));
}

TEST_F(ConnectedNodes, AreRejectedWhereNobodyLives) {
  server.kill_now();
  ASSERT_EQ(connect(id.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 8));
}

TEST_F(ConnectedNodes, PartWhenTheServerEnds) {
  establish();
  server.command('q');
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(ConnectedNodes, PartWhenTheServerIsKilled) {
  establish();
  server.kill_now();
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(ConnectedNodes, WaitForAServerThatIsStopped) {
  server.stop();
  ASSERT_EQ(connect(id.get(), parameters(0x11), {}), 0);
  usleep(600'000);  // longer than the first attempt may take: the request has to be repeated
  server.go_on();
  tell('r');
  tell('a');
  EXPECT_TRUE(next_is(inbox, EventType::kConnectResponse));
}

TEST_F(DatagramNodes, LearnTheQueuePairsNumber) {
  request();
  tell('a');
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kEstablished, 0, &event));
  EXPECT_EQ(event.datagram.qp_number, 0x22u);
}

TEST_F(DatagramNodes, AreToldThatNobodyListens) {
  const OwnedId other = make_resolved(*service, inbox, kNobodysPort, space, theirs.c_str());
  ASSERT_EQ(connect(other.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kUnreachable, 1));
}

}  // namespace
}  // namespace verbena::cm
