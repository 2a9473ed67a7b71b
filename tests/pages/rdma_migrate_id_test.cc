// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_migrate_id(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | migrates a communication identifier to a different event channel | LaterEventsAreOnTheNewChannel |
// | returns 0 on success, or -1 on error; errno will be set | FromSynchronousToSynchronousIsMinusOneAndEinval |
// | moves any pending events associated with the id to the new channel | PendingEventsMove, EventsOfOtherIdsStay |
// | users should not poll or invoke other routines while migrating | not testable: an order for the user |
// | will block while there are any unacknowledged events on the current channel | BlocksWhileAnEventIsUnacknowledged |
// | channel NULL: synchronous operation | WithoutAChannelItIsSynchronous |
// | all calls on the id will block until the operation completes | WithoutAChannelItIsSynchronous |
// clang-format on
#include <future>

#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaMigrateId : public AsyncTest {
 protected:
  void start_resolving(const CmId& id) {
    Address to = address_of(listener_);
    ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), 0);
  }

  EventChannel other_channel_ = make_channel();
};

TEST_F(RdmaMigrateId, LaterEventsAreOnTheNewChannel) {
  const CmId id = make_id(RDMA_PS_TCP, active_channel_.get());
  ASSERT_EQ(rdma_migrate_id(id.get(), other_channel_.get()), 0) << strerror(errno);
  EXPECT_EQ(id->channel, other_channel_.get());
  start_resolving(id);
  EXPECT_EQ(next_name(other_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_FALSE(has_event(active_channel_));
}

// cma.c, 44.0.
TEST_F(RdmaMigrateId, FromSynchronousToSynchronousIsMinusOneAndEinval) {
  const CmId id = make_id();
  errno = 0;
  EXPECT_EQ(rdma_migrate_id(id.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaMigrateId, PendingEventsMove) {
  const CmId id = make_id(RDMA_PS_TCP, active_channel_.get());
  start_resolving(id);
  ASSERT_TRUE(becomes_readable(active_channel_->fd));
  ASSERT_EQ(rdma_migrate_id(id.get(), other_channel_.get()), 0) << strerror(errno);
  EXPECT_FALSE(has_event(active_channel_));
  EXPECT_EQ(next_name(other_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
}

TEST_F(RdmaMigrateId, EventsOfOtherIdsStay) {
  const CmId id = make_id(RDMA_PS_TCP, active_channel_.get());
  const CmId other = make_id(RDMA_PS_TCP, active_channel_.get());
  start_resolving(other);
  ASSERT_TRUE(becomes_readable(active_channel_->fd));
  ASSERT_EQ(rdma_migrate_id(id.get(), other_channel_.get()), 0) << strerror(errno);
  const Event event = next_event(active_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->id, other.get());
}

TEST_F(RdmaMigrateId, BlocksWhileAnEventIsUnacknowledged) {
  const CmId id = make_id(RDMA_PS_TCP, active_channel_.get());
  start_resolving(id);
  Event event = next_event(active_channel_.get());
  auto migrated =
      std::async(std::launch::async, [this, &id] { return rdma_migrate_id(id.get(), other_channel_.get()); });
  EXPECT_EQ(migrated.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  event.reset();
  EXPECT_EQ(migrated.get(), 0);
}

TEST_F(RdmaMigrateId, WithoutAChannelItIsSynchronous) {
  const CmId id = make_id(RDMA_PS_TCP, active_channel_.get());
  ASSERT_EQ(rdma_migrate_id(id.get(), nullptr), 0) << strerror(errno);
  start_resolving(id);
  EXPECT_NE(id->verbs, nullptr) << "rdma_resolve_addr came back when it was done";
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
}

}  // namespace
}  // namespace verbena::pages
