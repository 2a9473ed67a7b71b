// SPDX-License-Identifier: BSD-2-Clause
//
// Memberships have ids and uids of their own.
#include "fixture.h"

namespace verbena::test {
namespace {

class Groups : public RdmaCm {
 protected:
  int join(uint32_t id, uint32_t* number, uint16_t flags = 0, uint64_t response = 0) {
    rdma_ucm_create_id_resp answer = {.id = ~0u};
    rdma_ucm_join_mcast request = {};
    request.response = response != 0 ? response : address_of(answer);
    request.uid = 55;
    request.id = id;
    request.addr_size = sizeof(sockaddr_in);
    request.join_flags = flags;
    request.addr.ss_family = AF_INET;
    const int error = channel_.command(RDMA_USER_CM_CMD_JOIN_MCAST, request, sizeof answer);
    *number = answer.id;
    return error;
  }
  int leave(uint32_t number, uint32_t* reported) {
    rdma_ucm_destroy_id_resp response = {.events_reported = ~0u};
    const rdma_ucm_destroy_id request = {.response = address_of(response), .id = number, .reserved = 0};
    const int error = channel_.command(RDMA_USER_CM_CMD_LEAVE_MCAST, request, sizeof response);
    *reported = response.events_reported;
    return error;
  }
  static cm::Event joined(cm::Id* id) {
    cm::Event event = event_of(id, cm::EventType::kMulticastJoin);
    event.is_datagram = true;
    event.join = fake.join;
    return event;
  }
};

TEST_F(Groups, EventsCarryUidAndIdOfTheMembership) {
  create();
  const uint32_t id = create(77, RDMA_PS_UDP);
  uint32_t number;
  ASSERT_EQ(join(id, &number), 0);
  raise(joined(fake.newest));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 55u);
  EXPECT_EQ(event.id, number);
}

TEST_F(Groups, EventRaisedWithinTheJoinIsTold) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  fake.during_call = joined(fake.newest);
  fake.raise_in = "join_multicast";
  uint32_t number;
  ASSERT_EQ(join(id, &number), 0);
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(event.uid, 55u);
}

TEST_F(Groups, FlagsSayThatAMemberOnlySends) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  uint32_t number;
  ASSERT_EQ(join(id, &number, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), 0);
  EXPECT_TRUE(fake.send_only);
  EXPECT_EQ(join(id, &number, RDMA_MC_JOIN_FLAG_RESERVED), EINVAL);
}

TEST_F(Groups, LeavingTellsHowManyEventsWereFetchedAndDropsTheRest) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  cm::Id* manager = fake.newest;
  uint32_t number;
  ASSERT_EQ(join(id, &number), 0);
  raise(joined(manager));
  raise(joined(manager));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  uint32_t reported;
  ASSERT_EQ(leave(number, &reported), 0);
  EXPECT_EQ(reported, 1u);
  EXPECT_FALSE(channel_.readable());
  raise(joined(manager));  // too late
  EXPECT_FALSE(channel_.readable());
  EXPECT_EQ(leave(number, &reported), ENOENT);
}

TEST_F(Groups, JoinThatIsRefusedLeavesNothing) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  fake.error = EINVAL;
  uint32_t number;
  EXPECT_EQ(join(id, &number), EINVAL);
  fake.error = 0;
  uint32_t reported;
  EXPECT_EQ(leave(0, &reported), ENOENT);
}

TEST_F(Groups, JoinWhoseResponseIsNotMemoryIsLeftAgain) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  uint32_t number;
  EXPECT_EQ(join(id, &number, 0, kNowhere), EFAULT);
  EXPECT_EQ(fake.last, "leave_multicast");
}

TEST_F(Groups, MembershipOfAnotherFileIsRefused) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  uint32_t number;
  ASSERT_EQ(join(id, &number), 0);
  Channel other;
  rdma_ucm_destroy_id_resp response;
  const rdma_ucm_destroy_id request = {.response = address_of(response), .id = number, .reserved = 0};
  EXPECT_EQ(other.command(RDMA_USER_CM_CMD_LEAVE_MCAST, request, sizeof response), EINVAL);
}

TEST_F(Groups, EndWithTheirId) {
  const uint32_t id = create(77, RDMA_PS_UDP);
  uint32_t number;
  ASSERT_EQ(join(id, &number), 0);
  ASSERT_EQ(destroy(id), 0);
  uint32_t reported;
  EXPECT_EQ(leave(number, &reported), ENOENT);
}

TEST_F(Groups, JoinIpTakesTheOlderForm) {
  rdma_ucm_create_id_resp answer = {};
  rdma_ucm_join_ip_mcast request = {};
  request.response = address_of(answer);
  request.uid = 55;
  request.id = create(77, RDMA_PS_UDP);
  request.addr.sin6_family = AF_INET6;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_JOIN_IP_MCAST, request, sizeof answer), 0);
  request.addr.sin6_family = AF_UNIX;
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_JOIN_IP_MCAST, request, sizeof answer), EINVAL);
}

}  // namespace
}  // namespace verbena::test
