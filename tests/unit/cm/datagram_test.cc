// SPDX-License-Identifier: BSD-2-Clause
//
// Identifiers of RDMA_PS_UDP: looking up queue pairs, and multicast groups.
#include <errno.h>
#include <gtest/gtest.h>

#include "cm/id.h"
#include "unit/cm/scene.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

struct Datagrams : ::testing::Test {
  TemporaryNode node;
  ServiceHolder service;
  Inbox passive_inbox, active_inbox;
  OwnedId listener = make_listener(service, passive_inbox, PortSpace::kUdp);
  OwnedId active = make_resolved(service, active_inbox, port_of(listener.get()), PortSpace::kUdp);
  OwnedId passive;

  void request(const char* data = "") {
    ASSERT_EQ(connect(active.get(), parameters(0x11, data), {}), 0);
    Event event;
    ASSERT_TRUE(next_is(passive_inbox, EventType::kConnectRequest, 0, &event));
    passive.reset(event.id);
    EXPECT_TRUE(event.is_datagram);
    EXPECT_EQ(event.datagram.private_data.length,
              180);  // IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE less the CMA header
    EXPECT_STREQ(reinterpret_cast<const char*>(event.datagram.private_data.bytes), data);
  }
};

TEST_F(Datagrams, LearnQueuePairKeyAndAddress) {
  request("hello");
  const ConnectionParameters given = parameters(0x22, "welcome");
  ASSERT_EQ(accept(passive.get(), &given, {}), 0);
  Event event;
  ASSERT_TRUE(next_is(active_inbox, EventType::kEstablished, 0, &event));
  EXPECT_TRUE(event.is_datagram);
  EXPECT_EQ(event.datagram.qp_number, 0x22u);
  EXPECT_EQ(event.datagram.qkey, 0x01234567u);  // RDMA_UDP_QKEY
  EXPECT_EQ(event.datagram.private_data.length, 136);
  EXPECT_STREQ(reinterpret_cast<const char*>(event.datagram.private_data.bytes), "welcome");
  EXPECT_EQ(event.datagram.address.is_global, 1);
  Route route;
  query(active.get(), &route);
  EXPECT_EQ(memcmp(&event.datagram.address.grh.dgid, &route.destination_gid, 16), 0);
}

TEST_F(Datagrams, AreRejectedWithData) {
  request();
  PrivateData data{};
  data.bytes[0] = 'n';
  data.length = 1;
  ASSERT_EQ(reject(passive.get(), data, 0), 0);
  Event event;
  ASSERT_TRUE(next_is(active_inbox, EventType::kUnreachable, 2, &event));  // IB_SIDR_REJECT
  EXPECT_EQ(event.datagram.private_data.bytes[0], 'n');
}

TEST_F(Datagrams, AreUnsupportedWhereNobodyListens) {
  listener.reset();
  ASSERT_EQ(connect(active.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kUnreachable, 1));  // IB_SIDR_UNSUPPORTED
}

TEST_F(Datagrams, AreRejectedWhenTheIdIsDestroyed) {
  request();
  passive.reset();
  EXPECT_TRUE(next_is(active_inbox, EventType::kUnreachable, 2));
}

// cma_sidr_rep_handler: the Q_Key of the id is fixed once its queue pair has it.
TEST_F(Datagrams, AnAnswerWithAnotherQkeyIsAnAddressError) {
  request();
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(init_qp_attributes(active.get(), &attr, &mask), 0);
  ConnectionParameters given = parameters(0x22);
  given.qkey = attr.qkey + 1;
  ASSERT_EQ(accept(passive.get(), &given, {}), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kAddressError, -EINVAL));
}

// What the connection reports after 16 times 4.1 s (unit.Resolution.WithoutAnswerIsGivenUp).
TEST_F(Datagrams, AreUnreachableWithoutAnAnswer) {
  request();
  {
    Service::Guard guard(*service.get());
    active->connection_event(CmEvent::kSidrReqError, nullptr);
  }
  EXPECT_TRUE(next_is(active_inbox, EventType::kUnreachable, -ETIMEDOUT));
}

TEST_F(Datagrams, ARefusedLookupIsRejected) {
  passive_inbox.take_requests(false);
  ASSERT_EQ(connect(active.get(), parameters(0x11), {}), 0);
  EXPECT_TRUE(next_is(active_inbox, EventType::kUnreachable, 2));  // IB_SIDR_REJECT
}

TEST_F(Datagrams, TooMuchPrivateDataIsRefused) {
  ConnectionParameters p = parameters(0x11);
  p.private_data.length = 181;
  EXPECT_EQ(connect(active.get(), p, {}), EINVAL);
}

TEST_F(Datagrams, QueuePairsNeedNoConnection) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(init_qp_attributes(active.get(), &attr, &mask), 0);
  EXPECT_NE(mask & IBV_QP_QKEY, 0);
  EXPECT_EQ(attr.qkey, 0x01234567u);
}

struct Groups : ::testing::Test {
  TemporaryNode node;
  ServiceHolder service;
  Inbox inbox;
  OwnedId id = make_id(service, inbox, PortSpace::kUdp);
  int join_context = 0;

  void resolve(const char* group) {
    ASSERT_EQ(resolve_address(id.get(), Ip("127.0.0.1"), Ip(group, 7174), 2000), 0);
    ASSERT_TRUE(next_is(inbox, EventType::kAddressResolved));
  }
};

TEST_F(Groups, AreJoined) {
  resolve("239.1.2.3");
  ASSERT_EQ(join_multicast(id.get(), Ip("239.1.2.3", 7174), false, &join_context), 0);
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastJoin, 0, &event));
  EXPECT_EQ(event.join, &join_context);
  EXPECT_EQ(event.datagram.qp_number, 0xffffffu);
  EXPECT_EQ(event.datagram.qkey, 0x01234567u);
  const uint8_t mgid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  EXPECT_EQ(memcmp(event.datagram.address.grh.dgid.raw, mgid, 16), 0);
}

TEST_F(Groups, AreLeft) {
  resolve("239.1.2.3");
  ASSERT_EQ(join_multicast(id.get(), Ip("239.1.2.3"), false, &join_context), 0);
  EXPECT_EQ(leave_multicast(id.get(), Ip("239.1.2.4")), EINVAL);
  EXPECT_EQ(leave_multicast(id.get(), Ip("239.1.2.3")), 0);
  EXPECT_EQ(leave_multicast(id.get(), Ip("239.1.2.3")), EINVAL);
}

TEST_F(Groups, NeedADevice) {
  ASSERT_EQ(bind_address(id.get(), Ip("0.0.0.0")), 0);
  EXPECT_EQ(join_multicast(id.get(), Ip("239.1.2.3"), false, nullptr), EINVAL);
}

TEST_F(Groups, AreForDatagramsOnly) {
  const OwnedId connected = make_id(service, inbox);
  ASSERT_EQ(resolve_address(connected.get(), nullptr, Ip("127.0.0.1", 1), 100), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressResolved));
  EXPECT_EQ(join_multicast(connected.get(), Ip("239.1.2.3"), false, nullptr), EINVAL);
}

}  // namespace
}  // namespace verbena::cm
