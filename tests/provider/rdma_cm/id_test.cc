// SPDX-License-Identifier: BSD-2-Clause
//
// Ids: to which file they belong, when they end, how many events the program got.
#include "fixture.h"

namespace verbena::test {
namespace {

using Ids = RdmaCm;

TEST_F(Ids, AreTheSmallestFreeIntegers) {
  const uint32_t first = create();
  const uint32_t second = create();
  EXPECT_EQ(second, first + 1);
  ASSERT_EQ(destroy(first), 0);
  EXPECT_EQ(create(), first);
}

TEST_F(Ids, UnknownPortSpaceIsRefused) {
  rdma_ucm_create_id_resp response;
  const rdma_ucm_create_id request = {
      .uid = 1, .response = address_of(response), .ps = 0x0107, .qp_type = 0, .reserved = {}};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CREATE_ID, request, 4), EINVAL);
}

TEST_F(Ids, TypeFollowsThePortSpace) {
  for (const auto& [space, type] : {std::pair{RDMA_PS_TCP, IBV_QPT_RC},
                                    {RDMA_PS_UDP, IBV_QPT_UD},
                                    {RDMA_PS_IPOIB, IBV_QPT_UD},
                                    {RDMA_PS_IB, IBV_QPT_RC}}) {
    create(1, static_cast<uint16_t>(space));
    EXPECT_EQ(fake.newest->type, type);
    EXPECT_EQ(static_cast<int>(fake.newest->space), space);
  }
}

TEST_F(Ids, RefusalOfTheManagerIsTheCommands) {
  fake.error = EMFILE;
  rdma_ucm_create_id_resp response;
  const rdma_ucm_create_id request = {
      .uid = 1, .response = address_of(response), .ps = RDMA_PS_TCP, .qp_type = 0, .reserved = {}};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CREATE_ID, request, 4), EMFILE);
}

TEST_F(Ids, UnknownOneIsNotFound) {
  EXPECT_EQ(destroy(4711), ENOENT);
  const rdma_ucm_disconnect request = {.id = 4711};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_DISCONNECT, request), ENOENT);
}

TEST_F(Ids, DestroyedOneIsNotFound) {
  const uint32_t id = create();
  ASSERT_EQ(destroy(id), 0);
  EXPECT_EQ(destroy(id), ENOENT);
}

TEST_F(Ids, OneOfAnotherFileIsRefused) {
  Channel other;
  const uint32_t id = create();
  const rdma_ucm_disconnect request = {.id = id};
  EXPECT_EQ(other.command(RDMA_USER_CM_CMD_DISCONNECT, request), EINVAL);
  EXPECT_EQ(destroy_on(other, id), EINVAL);
  EXPECT_EQ(destroy(id), 0);
}

TEST_F(Ids, AreDestroyedWithTheLastDescriptor) {
  create();
  create();
  const int copy = dup(channel_.fd());
  ::close(channel_.release());
  EXPECT_EQ(fake.alive, 2);
  ::close(copy);
  EXPECT_EQ(end_abandoned_pipes(), 1);
  EXPECT_EQ(fake.alive, 0);
}

TEST_F(Ids, ConnectionRequestsNobodyHasFetchedEndWithTheListener) {
  const uint32_t id = create();
  cm::Id* listener = fake.newest;
  listen(id, 4);
  EXPECT_TRUE(raise_request(listener));
  EXPECT_TRUE(raise_request(listener));
  EXPECT_EQ(fake.alive, 3);
  EXPECT_EQ(destroy(id), 0);
  EXPECT_EQ(fake.alive, 0);
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Ids, ConnectionRequestThatWasFetchedOutlivesTheListener) {
  const uint32_t id = create();
  listen(id, 4);
  ASSERT_TRUE(raise_request(fake.newest));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 77u);
  ASSERT_EQ(destroy(id), 0);
  EXPECT_EQ(destroy(event.id), 0);
}

TEST_F(Ids, DestroyingTellsHowManyEventsWereFetched) {
  const uint32_t id = create();
  cm::Id* manager = fake.newest;
  for (int i = 0; i < 3; ++i) raise(event_of(manager, cm::EventType::kRouteResolved));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  ASSERT_EQ(get_event(&event), 0);
  uint32_t reported = 0;
  ASSERT_EQ(destroy(id, &reported), 0);
  EXPECT_EQ(reported, 2u);
  EXPECT_FALSE(channel_.readable());
}

TEST_F(Ids, WhoseDeviceIsGoneIsGoodForDestroyingOnly) {
  const uint32_t id = create();
  raise(event_of(fake.newest, cm::EventType::kDeviceRemoval));
  const rdma_ucm_disconnect request = {.id = id};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_DISCONNECT, request), EIO);
  EXPECT_EQ(destroy(id), 0);
}

TEST_F(Ids, WithoutDeviceCannotConnect) {
  fake.route.has_device = false;
  rdma_ucm_connect request = {};
  request.id = create();
  request.conn_param.valid = 1;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_CONNECT, request), EINVAL);
}

}  // namespace
}  // namespace verbena::test
