// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_migrate_id(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | migrates a communication identifier to a different event channel | clause rdma_migrate_id.events |
// | returns 0 on success, or -1 on error; errno will be set | FromSynchronousToSynchronousIsMinusOneAndEinval |
// | moves any pending events associated with the id to the new channel | clause rdma_migrate_id.events, EventsOfOtherIdsStay |
// | users should not poll or invoke other routines while migrating | not testable: an order for the user |
// | will block while there are any unacknowledged events on the current channel | clause rdma_migrate_id.blocks |
// | channel NULL: synchronous operation | clause rdma_migrate_id.synchronous |
// | all calls on the id will block until the operation completes | clause rdma_migrate_id.synchronous |
// clang-format on
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

// cma.c, 44.0.
TEST_F(RdmaMigrateId, FromSynchronousToSynchronousIsMinusOneAndEinval) {
  const CmId id = make_id();
  errno = 0;
  EXPECT_EQ(rdma_migrate_id(id.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
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

}  // namespace
}  // namespace verbena::pages
