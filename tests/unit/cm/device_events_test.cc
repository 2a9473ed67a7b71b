// SPDX-License-Identifier: BSD-2-Clause
//
// Events of their device that ids of the connection manager get: it fails, its interface's address changes,
// its port goes down (`verbena event`).
#include <errno.h>
#include <gtest/gtest.h>

#include "fabric/device_events.h"
#include "unit/cm/scene.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

struct TheDevice : ::testing::Test {
  explicit TheDevice(LinkLayer link_layer = LinkLayer::kEthernet)
      : node({.count = 2, .link_layer = link_layer}) {}
  TemporaryNode node;
  ServiceHolder service;
  Inbox inbox;

  void happens(ibv_event_type type, uint32_t device = 0) {
    uint32_t told = 0;
    EXPECT_EQ(raise_device_event(node.directory(), node.path(), device, type, &told), 0);
  }
  OwnedId bound(PortSpace space = PortSpace::kTcp, uint16_t port = 0) {
    OwnedId id = make_id(service, inbox, space);
    EXPECT_EQ(bind_address(id.get(), Ip("127.0.0.1", port)), 0);
    return id;
  }
  // The earlier events have been reported: this one comes after them.
  void expect_silence_from_before() {
    const OwnedId last = bound();
    for (int i = 0; i < 2; ++i) {
      happens(kAddressChange);
      Event event;
      ASSERT_TRUE(next_is(inbox, EventType::kAddressChange, 0, &event));
      ASSERT_EQ(event.id, last.get());
    }
  }
};
struct TheFailedDevice : TheDevice {};
struct TheInfinibandDevice : TheDevice {
  TheInfinibandDevice() : TheDevice(LinkLayer::kInfiniband) {}
};

TEST_F(TheFailedDevice, IsRemovedFromABoundId) {
  const OwnedId id = bound();
  happens(IBV_EVENT_DEVICE_FATAL);
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kDeviceRemoval, 0, &event));
  EXPECT_EQ(event.id, id.get());
}

TEST_F(TheFailedDevice, IsRemovedFromBothEndsOfAConnection) {
  Inbox passive_inbox;
  const OwnedId listener = make_listener(service, passive_inbox);  // on no device
  const OwnedId active = make_resolved(service, inbox, port_of(listener.get()));
  ASSERT_EQ(connect(active.get(), parameters(1), {}), 0);
  Event request;
  ASSERT_TRUE(next_is(passive_inbox, EventType::kConnectRequest, 0, &request));
  const OwnedId passive(request.id);
  const ConnectionParameters answer = parameters(2);
  ASSERT_EQ(accept(passive.get(), &answer, {}), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kConnectResponse));
  ASSERT_EQ(accept(active.get(), nullptr, {}), 0);
  ASSERT_TRUE(next_is(passive_inbox, EventType::kEstablished));
  happens(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(next_is(inbox, EventType::kDeviceRemoval));
  EXPECT_TRUE(next_is(passive_inbox, EventType::kDeviceRemoval));
}

TEST_F(TheFailedDevice, LeavesNothingToDoWithTheId) {
  const OwnedId id = bound();
  happens(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(next_is(inbox, EventType::kDeviceRemoval));
  EXPECT_EQ(listen(id.get(), 1), EINVAL);
  EXPECT_EQ(resolve_address(id.get(), nullptr, Ip("127.0.0.1", 1), 1), EINVAL);
  EXPECT_EQ(disconnect(id.get()), EINVAL);
  Route route;
  query(id.get(), &route);
  EXPECT_FALSE(route.has_device);
}

TEST_F(TheFailedDevice, FreesThePort) {
  const OwnedId id = bound();
  const uint16_t port = port_of(id.get());
  happens(IBV_EVENT_DEVICE_FATAL);
  ASSERT_TRUE(next_is(inbox, EventType::kDeviceRemoval));
  bound(PortSpace::kTcp, port);
}

TEST_F(TheFailedDevice, IsNoConcernOfAWildcardListener) {
  const OwnedId listener = make_listener(service, inbox);
  happens(IBV_EVENT_DEVICE_FATAL);
  expect_silence_from_before();
  EXPECT_NE(make_resolved(service, inbox, port_of(listener.get())), nullptr);
}

TEST_F(TheFailedDevice, IsNoConcernOfAnotherDevicesId) {
  const OwnedId id = bound();
  happens(IBV_EVENT_DEVICE_FATAL, 1);
  happens(kAddressChange);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
}

TEST_F(TheFailedDevice, IsNewForALaterProcess) {
  happens(IBV_EVENT_DEVICE_FATAL);
  expect_silence_from_before();
}

TEST_F(TheDevice, WithAnotherAddressIsToldToIdsAtAnyStage) {
  const OwnedId listener = bound();
  ASSERT_EQ(listen(listener.get(), 1), 0);
  happens(kAddressChange);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
  const OwnedId active = make_resolved(service, inbox, 1);
  listen(listener.get(), 1);
  happens(kAddressChange);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
}

// cma.c reacts to bonds, not to GID tables.
TEST_F(TheDevice, WithAnotherGidIsNoEventOfIds) {
  const OwnedId id = bound();
  happens(IBV_EVENT_GID_CHANGE);
  happens(IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(next_is(inbox, EventType::kDeviceRemoval));
}

TEST_F(TheInfinibandDevice, LosesItsGroupsWithItsPort) {
  const OwnedId id = bound(PortSpace::kUdp);
  int join = 0;
  ASSERT_EQ(join_multicast(id.get(), Ip("239.1.2.3"), false, &join), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastJoin));
  happens(IBV_EVENT_PORT_ERR);
  Event event;
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastError, -ENETRESET, &event));
  EXPECT_EQ(event.join, &join);
  EXPECT_EQ(leave_multicast(id.get(), Ip("239.1.2.3")), 0);
}

TEST_F(TheInfinibandDevice, LosesAGroupOnce) {
  const OwnedId id = bound(PortSpace::kUdp);
  ASSERT_EQ(join_multicast(id.get(), Ip("239.1.2.3"), false, nullptr), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastJoin));
  happens(IBV_EVENT_PORT_ERR);
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastError, -ENETRESET));
  happens(IBV_EVENT_PORT_ACTIVE);
  happens(IBV_EVENT_PORT_ERR);
  happens(kAddressChange);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
}

// There is no subnet administrator that could forget them.
TEST_F(TheDevice, OnEthernetKeepsItsGroups) {
  const OwnedId id = bound(PortSpace::kUdp);
  ASSERT_EQ(join_multicast(id.get(), Ip("239.1.2.3"), false, nullptr), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kMulticastJoin));
  happens(IBV_EVENT_PORT_ERR);
  happens(kAddressChange);
  EXPECT_TRUE(next_is(inbox, EventType::kAddressChange));
}

}  // namespace
}  // namespace verbena::cm
