// SPDX-License-Identifier: BSD-2-Clause
//
// Identifiers of two processes: connections between them, and what one sees when the other dies or stops.
#include <errno.h>
#include <gtest/gtest.h>

#include "adapter/clock.h"
#include "unit/cm/impostor.h"
#include "unit/cm/server.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

struct TwoProcesses : ::testing::Test {
  TemporaryNode node;
  Child server{[](const Child& child) { return serve(child, PortSpace::kTcp); }};

  void SetUp() override { ASSERT_EQ(server.answer(), 'L'); }
  void tell(char word) {
    server.command(word);
    ASSERT_EQ(server.answer(), 'y') << word;
  }
};

// With an id of this process whose route is resolved.
struct Connected : TwoProcesses {
  std::unique_ptr<ServiceHolder> service;
  Inbox inbox;
  OwnedId id;

  void SetUp() override {
    TwoProcesses::SetUp();
    service = std::make_unique<ServiceHolder>();
    id = make_resolved(*service, inbox, kServerPort);
  }
  void TearDown() override { id.reset(); }

  void request() {
    ASSERT_EQ(connect(id.get(), parameters(0x11, "hello"), {}), 0);
    tell('r');
  }
  void respond() {
    request();
    tell('a');
    ASSERT_TRUE(next_is(inbox, EventType::kConnectResponse));
  }
  void establish() {
    respond();
    ASSERT_EQ(accept(id.get(), nullptr, {}), 0);
    tell('e');
  }
};

TEST_F(Connected, ConnectAndPart) {
  establish();
  ASSERT_EQ(disconnect(id.get()), 0);
  tell('d');
  tell('D');
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(Connected, PartWhenTheServerWants) {
  establish();
  tell('D');
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(Connected, AreRejected) {
  request();
  tell('x');
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(Connected, AServerThatEndsDisconnects) {
  establish();
  server.command('q');
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(Connected, AServerThatIsKilledDisconnects) {
  establish();
  server.kill_now();
  EXPECT_TRUE(next_is(inbox, EventType::kDisconnected));
}

TEST_F(Connected, AServerKilledBeforeItAnsweredRejects) {
  request();
  server.kill_now();
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(Connected, AServerKilledAfterItAnsweredRejects) {
  respond();
  server.kill_now();
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(Connected, AServerKilledBeforeItSawTheRequestRejects) {
  server.stop();
  ASSERT_EQ(connect(id.get(), parameters(0x11), {}), 0);
  server.kill_now();
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 28));
}

TEST_F(Connected, AServerThatIsDeadBeforeListensNoMore) {
  server.kill_now();
  ASSERT_EQ(connect(id.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(inbox, EventType::kRejected, 8));
}

TEST_F(Connected, APortIsFreeWhenItsProcessIsKilled) {
  server.kill_now();
  const OwnedId other = make_id(*service, inbox);
  EXPECT_EQ(bind_address(other.get(), Ip("0.0.0.0", kServerPort)), 0);
}

TEST_F(Connected, APortIsTakenAcrossProcesses) {
  const OwnedId other = make_id(*service, inbox);
  EXPECT_EQ(bind_address(other.get(), Ip("0.0.0.0", kServerPort)), EADDRNOTAVAIL);
}

TEST_F(Connected, AStoppedServerHoldsNobodyUp) {
  establish();
  server.stop();
  ASSERT_EQ(disconnect(id.get()), 0);
  id.reset();
  server.go_on();
  tell('d');
}

TEST_F(Connected, AForkedChildOfThePeerDoesNotKeepItAlive) {
  establish();
  Child bystander([](const Child& child) { return child.hear(); });  // has this process's descriptors
  id.reset();
  service.reset();
  tell('d');
}

// A client in a process of its own, as far as `how_far`: 'c' has sent its request, 'r' has the response, 'e'
// has confirmed it. Then it waits.
int run_client(const Child& child, char how_far) {
  ServiceHolder service;
  Inbox inbox;
  const OwnedId id = make_resolved(service, inbox, kServerPort);
  bool good = connect(id.get(), parameters(0x11), {}) == 0;
  if (how_far != 'c') good = inbox.next().type == EventType::kConnectResponse;
  if (how_far == 'e') good = good && accept(id.get(), nullptr, {}) == 0;
  child.tell(good ? how_far : 'n');
  return child.hear();
}

TEST_F(TwoProcesses, AClientKilledAfterItsRequestIsHeardOf) {
  Child client([](const Child& child) { return run_client(child, 'c'); });
  ASSERT_EQ(client.answer(), 'c');
  tell('r');
  client.kill_now();
  tell('t');
}

TEST_F(TwoProcesses, AClientKilledAfterTheResponseIsHeardOf) {
  Child client([](const Child& child) { return run_client(child, 'r'); });
  tell('r');
  tell('a');
  ASSERT_EQ(client.answer(), 'r');
  client.kill_now();
  tell('X');
}

TEST_F(TwoProcesses, AClientKilledWhenConnectedIsHeardOf) {
  Child client([](const Child& child) { return run_client(child, 'e'); });
  tell('r');
  tell('a');
  ASSERT_EQ(client.answer(), 'e');
  tell('e');
  client.kill_now();
  tell('d');
}

// ---- a peer that stays alive, and sends nothing ----------------------------------------------------------

constexpr int64_t kMillisecond = 1'000'000;

TEST_F(TwoProcesses, AResponseThatNobodyConfirmsIsUnreachable) {
  const ServiceHolder service;
  Inbox inbox;
  const OwnedId listener = make_listener(service, inbox);
  SilentPeer peer(node, server.pid());
  peer.ask(port_of(listener.get()), 13, 3);  // 32 ms, and three times again
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kConnectRequest, 0, &event));
  const OwnedId passive(event.id);
  const ConnectionParameters given = parameters(0x22);
  const int64_t begin = now_ns();
  ASSERT_EQ(accept(passive.get(), &given, {}), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kUnreachable, -ETIMEDOUT, &event));
  EXPECT_EQ(event.id, passive.get());
  EXPECT_GE(now_ns() - begin, 4 * 32 * kMillisecond);
  EXPECT_EQ(peer.heard(MessageKind::kRep), 4);
}

TEST_F(TwoProcesses, ADisconnectThatNobodyAnswersIsOverAllTheSame) {
  const ServiceHolder service;
  Inbox inbox;
  const OwnedId listener = make_listener(service, inbox);
  SilentPeer peer(node, server.pid());
  peer.ask(port_of(listener.get()), 14, 15);  // 64 ms, 1 s in all
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kConnectRequest, 0, &event));
  const OwnedId passive(event.id);
  const ConnectionParameters given = parameters(0x22);
  ASSERT_EQ(accept(passive.get(), &given, {}), 0);
  ASSERT_EQ(notify(passive.get(), IBV_EVENT_COMM_EST), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kEstablished));
  const int64_t begin = now_ns();
  ASSERT_EQ(disconnect(passive.get()), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kDisconnected, -ETIMEDOUT));
  EXPECT_GE(now_ns() - begin, 16 * 64 * kMillisecond);
  EXPECT_EQ(peer.heard(MessageKind::kDreq), 16);
  EXPECT_TRUE(next_is(inbox, EventType::kTimewaitExit));
}

}  // namespace
}  // namespace verbena::cm
