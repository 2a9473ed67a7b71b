// SPDX-License-Identifier: BSD-2-Clause
//
// Two identifiers of one process that connect, reject and disconnect.
#include <errno.h>
#include <gtest/gtest.h>

#include "unit/cm/scene.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

struct Connecting : ::testing::Test {
  TemporaryNode node;
  ServiceHolder service;
  Inbox passive_inbox, active_inbox;
  OwnedId listener = make_listener(service, passive_inbox);
  OwnedId active = make_resolved(service, active_inbox, port_of(listener.get()));
  OwnedId passive;

  void request(const char* data = "") {
    ASSERT_EQ(connect(active.get(), parameters(0x11, data), {}), 0);
    Event event;
    ASSERT_TRUE(next_is(passive_inbox, EventType::kConnectRequest, 0, &event));
    passive.reset(event.id);
  }
  void establish() {
    request();
    const ConnectionParameters given = parameters(0x22);
    ASSERT_EQ(accept(passive.get(), &given, {}), 0);
    ASSERT_TRUE(next_is(active_inbox, EventType::kConnectResponse));
    ASSERT_EQ(accept(active.get(), nullptr, {}), 0);
    ASSERT_TRUE(next_is(passive_inbox, EventType::kEstablished));
  }
};

TEST_F(Connecting, ARequestTellsWhatThePeerGave) {
  const Ece ece{0x123456, 0x789abcde};
  ASSERT_EQ(connect(active.get(), parameters(0x11, "hello"), ece), 0);
  const Event event = passive_inbox.next();
  passive.reset(event.id);
  ASSERT_EQ(event.type, EventType::kConnectRequest);
  EXPECT_EQ(event.listener, listener.get());
  EXPECT_FALSE(event.is_datagram);
  EXPECT_EQ(event.connection.qp_number, 0x11u);
  EXPECT_EQ(event.connection.responder_resources, 2);  // the peer's initiator depth
  EXPECT_EQ(event.connection.initiator_depth, 3);
  EXPECT_EQ(event.connection.retry_count, 7);
  EXPECT_EQ(event.connection.rnr_retry_count, 6);
  EXPECT_EQ(event.ece.vendor_id, ece.vendor_id);
  EXPECT_EQ(event.ece.attr_mod, ece.attr_mod);
  EXPECT_EQ(event.connection.private_data.length, 56);  // IB_CM_REQ_PRIVATE_DATA_SIZE less the CMA header
  EXPECT_STREQ(reinterpret_cast<const char*>(event.connection.private_data.bytes), "hello");
}

TEST_F(Connecting, AResponseTellsWhatThePeerGave) {
  request();
  const Ece ece{0xabcdef, 7};
  const ConnectionParameters given = parameters(0x22, "welcome");
  ASSERT_EQ(accept(passive.get(), &given, ece), 0);
  const Event event = active_inbox.next();
  ASSERT_EQ(event.type, EventType::kConnectResponse);
  EXPECT_EQ(event.connection.qp_number, 0x22u);
  EXPECT_EQ(event.connection.private_data.length, 196);
  EXPECT_STREQ(reinterpret_cast<const char*>(event.connection.private_data.bytes), "welcome");
  EXPECT_EQ(event.ece.vendor_id, ece.vendor_id);
  EXPECT_EQ(event.ece.attr_mod, ece.attr_mod);
}

TEST_F(Connecting, BothEndsKnowEachOthersAddress) {
  request();
  Route here, there;
  query(active.get(), &here);
  query(passive.get(), &there);
  EXPECT_EQ(memcmp(&here.source, &there.destination, sizeof(sockaddr_in)), 0);
  EXPECT_EQ(memcmp(&here.destination, &there.source, sizeof(sockaddr_in)), 0);
  EXPECT_EQ(memcmp(&here.source_gid, &there.destination_gid, 16), 0);
  EXPECT_EQ(here.path_count, 1u);
  EXPECT_EQ(there.path_count, 1u);
}

TEST_F(Connecting, IsEstablishedByTheReadyToUse) { establish(); }

TEST_F(Connecting, IsEstablishedByTheFirstData) {
  request();
  const ConnectionParameters given = parameters(0x22);
  ASSERT_EQ(accept(passive.get(), &given, {}), 0);
  EXPECT_EQ(notify(passive.get(), IBV_EVENT_COMM_EST), 0);
  EXPECT_TRUE(next_is(passive_inbox, EventType::kEstablished));
  EXPECT_EQ(notify(passive.get(), IBV_EVENT_COMM_EST), EISCONN);
}

TEST_F(Connecting, QueuePairsGetWhatTheyNeed) {
  establish();
  ibv_qp_attr attr{}, far{};
  int mask = 0;
  attr.qp_state = far.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(init_qp_attributes(active.get(), &attr, &mask), 0);
  EXPECT_EQ(attr.dest_qp_num, 0x22u);
  ASSERT_EQ(init_qp_attributes(passive.get(), &far, &mask), 0);
  EXPECT_EQ(far.dest_qp_num, 0x11u);
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(init_qp_attributes(active.get(), &send, &mask), 0);
  EXPECT_EQ(send.sq_psn, far.rq_psn);
}

TEST_F(Connecting, PartsWhenTheActiveSideWants) {
  establish();
  ASSERT_EQ(disconnect(active.get()), 0);
  EXPECT_TRUE(next_is(passive_inbox, EventType::kDisconnected));
  ASSERT_EQ(disconnect(passive.get()), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kDisconnected));
  EXPECT_TRUE(next_is(active_inbox, EventType::kTimewaitExit));
  EXPECT_TRUE(next_is(passive_inbox, EventType::kTimewaitExit));
}

TEST_F(Connecting, PartsWhenBothWantAtOnce) {
  establish();
  ASSERT_EQ(disconnect(active.get()), 0);
  ASSERT_EQ(disconnect(passive.get()), 0);
  EXPECT_TRUE(next_is(passive_inbox, EventType::kDisconnected));
  EXPECT_TRUE(next_is(active_inbox, EventType::kDisconnected));
}

TEST_F(Connecting, PartsWhenOneEndIsDestroyed) {
  establish();
  passive.reset();
  EXPECT_TRUE(next_is(active_inbox, EventType::kDisconnected));
}

TEST_F(Connecting, IsRejectedWithReasonAndData) {
  request();
  PrivateData data{};
  memcpy(data.bytes, "no", 3);
  data.length = 3;
  ASSERT_EQ(reject(passive.get(), data, 0), 0);
  Event event;
  EXPECT_TRUE(next_is(active_inbox, EventType::kRejected, 28, &event));
  EXPECT_EQ(event.connection.private_data.length, 148);
  EXPECT_STREQ(reinterpret_cast<const char*>(event.connection.private_data.bytes), "no");
}

TEST_F(Connecting, IsRejectedWhenNobodyListens) {
  listener.reset();
  ASSERT_EQ(connect(active.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kRejected, 8));
}

TEST_F(Connecting, IsRejectedWhenTheRequestIsDestroyed) {
  request();
  passive.reset();
  EXPECT_TRUE(next_is(active_inbox, EventType::kRejected, 28));
}

TEST_F(Connecting, ARequestSurvivesItsListener) {
  request();
  listener.reset();
  const ConnectionParameters given = parameters(0x22);
  EXPECT_EQ(accept(passive.get(), &given, {}), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kConnectResponse));
}

TEST_F(Connecting, APassiveSideHearsOfAnActiveOneThatGaveUp) {
  request();
  active.reset();
  EXPECT_TRUE(next_is(passive_inbox, EventType::kRejected, 4));
}

TEST_F(Connecting, ARefusedRequestIsNotAnswered) {
  passive_inbox.take_requests(false);
  ASSERT_EQ(connect(active.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(eventually([&] { return passive_inbox.refused() == 1; }));
  EXPECT_TRUE(active_inbox.empty());
}

TEST_F(Connecting, TooMuchPrivateDataIsRefused) {
  ConnectionParameters p = parameters(0x11);
  p.private_data.length = 57;
  EXPECT_EQ(connect(active.get(), p, {}), EINVAL);
  p.private_data.length = 56;
  EXPECT_EQ(connect(active.get(), p, {}), 0);
}

TEST_F(Connecting, AnAcceptThatCannotBeRejects) {
  request();
  EXPECT_EQ(accept(passive.get(), nullptr, {}), EINVAL);
  EXPECT_TRUE(next_is(active_inbox, EventType::kRejected, 28));
}

TEST_F(Connecting, StepsOutOfOrderAreRefused) {
  EXPECT_EQ(disconnect(active.get()), EINVAL);
  EXPECT_EQ(reject(active.get(), {}, 0), EINVAL);
  EXPECT_EQ(notify(active.get(), IBV_EVENT_COMM_EST), EINVAL);
  EXPECT_EQ(accept(active.get(), nullptr, {}), EINVAL);
  EXPECT_EQ(listen(active.get(), 1), EINVAL);
  EXPECT_EQ(resolve_route(active.get(), 1), EINVAL);
  EXPECT_EQ(resolve_address(active.get(), nullptr, Ip("127.0.0.1", 1), 1), EINVAL);
}

}  // namespace
}  // namespace verbena::cm
