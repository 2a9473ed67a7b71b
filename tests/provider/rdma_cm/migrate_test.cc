// SPDX-License-Identifier: BSD-2-Clause
//
// MIGRATE_ID: rdma_migrate_id(3).
#include "fixture.h"

namespace verbena::test {
namespace {

class Migrate : public RdmaCm {
 protected:
  // From `from` to channel_.
  int migrate(const Channel& from, uint32_t id, uint32_t* reported = nullptr) {
    return migrate_fd(channel_, from.fd(), id, reported);
  }
  int migrate_fd(Channel& to, int from, uint32_t id, uint32_t* reported = nullptr) {
    rdma_ucm_migrate_resp response = {.events_reported = ~0u};
    const rdma_ucm_migrate_id request = {
        .response = address_of(response), .id = id, .fd = static_cast<uint32_t>(from)};
    const int error = to.command(RDMA_USER_CM_CMD_MIGRATE_ID, request, sizeof response);
    if (reported != nullptr) *reported = response.events_reported;
    return error;
  }
  void TearDown() override {
    other_.close();
    RdmaCm::TearDown();
  }
  Channel other_;
};

TEST_F(Migrate, IdBelongsToTheNewFileAfterwards) {
  const uint32_t id = create_on(other_);
  ASSERT_EQ(migrate(other_, id), 0);
  EXPECT_EQ(destroy_on(other_, id), EINVAL);
  EXPECT_EQ(destroy(id), 0);
}

TEST_F(Migrate, EventsGoAlongWithTheirTokens) {
  const uint32_t id = create_on(other_);
  cm::Id* manager = fake.newest;
  const uint32_t staying = create_on(other_, 88);
  raise(event_of(fake.newest, cm::EventType::kRouteResolved));
  for (int i = 0; i < 3; ++i) raise(event_of(manager, cm::EventType::kRouteResolved, i));
  ASSERT_EQ(migrate(other_, id), 0);
  raise(event_of(manager, cm::EventType::kRouteResolved, 3));
  rdma_ucm_event_resp event;
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(channel_.readable());
    ASSERT_EQ(get_event(&event), 0);
    EXPECT_EQ(event.status, i);
  }
  EXPECT_FALSE(channel_.readable());
  ASSERT_EQ(get_event_on(other_, &event), 0);
  EXPECT_EQ(event.id, staying);
  EXPECT_FALSE(other_.readable());
}

TEST_F(Migrate, TellsHowManyEventsWereFetched) {
  const uint32_t id = create_on(other_);
  raise(event_of(fake.newest, cm::EventType::kRouteResolved));
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event_on(other_, &event), 0);
  uint32_t reported = 0;
  ASSERT_EQ(migrate(other_, id, &reported), 0);
  EXPECT_EQ(reported, 1u);
}

TEST_F(Migrate, ToWhereItIsChangesNothing) {
  const uint32_t id = create();
  raise(event_of(fake.newest, cm::EventType::kRouteResolved));
  EXPECT_EQ(migrate(channel_, id), 0);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(&event), 0);
}

TEST_F(Migrate, DescriptorThatIsNotOpenIsNotFound) {
  EXPECT_EQ(migrate_fd(channel_, 4000, create()), ENOENT);
}

TEST_F(Migrate, DescriptorOfSomethingElseIsRefused) { EXPECT_EQ(migrate_fd(channel_, 0, create()), EINVAL); }

TEST_F(Migrate, IdOfAnotherFileThanTheOneNamedIsRefused) {
  const uint32_t id = create();
  EXPECT_EQ(migrate(other_, id), EINVAL);
}

TEST_F(Migrate, UnknownIdIsNotFound) { EXPECT_EQ(migrate(other_, 4711), ENOENT); }

TEST_F(Migrate, RequestsNobodyHasFetchedComeOutOfTheNewFile) {
  const uint32_t id = create_on(other_);
  cm::Id* listener = fake.newest;
  const rdma_ucm_listen request = {.id = id, .backlog = 4};
  ASSERT_EQ(other_.command(RDMA_USER_CM_CMD_LISTEN, request), 0);
  ASSERT_TRUE(raise_request(listener));
  ASSERT_EQ(migrate(other_, id), 0);
  rdma_ucm_event_resp event;
  ASSERT_EQ(get_event(&event), 0);
  EXPECT_EQ(destroy(event.id), 0);
}

TEST_F(Migrate, OldFileClosedDoesNotEndTheId) {
  const uint32_t id = create_on(other_);
  ASSERT_EQ(migrate(other_, id), 0);
  other_.close();
  EXPECT_EQ(destroy(id), 0);
}

}  // namespace
}  // namespace verbena::test
