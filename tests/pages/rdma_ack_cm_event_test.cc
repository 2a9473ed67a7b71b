// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_ack_cm_event(3) and rdma_destroy_id(3), sentence by sentence: the one waits for the other.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | all events allocated by rdma_get_cm_event must be released, one-to-one | DestroyingTheIdWaitsForIt |
// | frees the event structure and any memory that it references | not testable: it may not be looked at |
// | returns 0 on success, or -1 on error; errno will be set | ReturnsZero, WithoutAnEventItIsMinusOneAndEinval |
// | destroys the specified id | DestroyingReturnsZero |
// | and cancels any outstanding asynchronous operation | DestroyingCancelsWhatIsUnderWay, NobodyIsToldOfADestroyedId |
// | must free any associated QP before | not testable: an order for the user |
// | and ack all related events | DestroyingTheIdWaitsForIt |
// clang-format on
#include <sched.h>

#include <future>

#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaAckCmEvent : public AsyncTest {
 protected:
  void start_resolving() {
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    Address to = address_of(listener_);
    ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  }
};

TEST_F(RdmaAckCmEvent, ReturnsZero) {
  start_resolving();
  EXPECT_EQ(rdma_ack_cm_event(next_event(active_channel_.get()).release()), 0);
}

TEST_F(RdmaAckCmEvent, WithoutAnEventItIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_ack_cm_event(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaAckCmEvent, DestroyingTheIdWaitsForIt) {
  start_resolving();
  Event event = next_event(active_channel_.get());
  auto destroyed = std::async(std::launch::async, [this] { return rdma_destroy_id(active_.release()); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  event.reset();
  EXPECT_EQ(destroyed.get(), 0);
}

TEST_F(RdmaAckCmEvent, DestroyingReturnsZero) { EXPECT_EQ(rdma_destroy_id(make_bound_id().release()), 0); }

// The caller's REJ takes the connection to idle (cm_rej_handler in Linux, cm.c), whose QP attributes nobody
// knows. An id that has not been accepted is told nothing (ucma_event_handler, ucma.c).
TEST_F(RdmaAckCmEvent, DestroyingCancelsWhatIsUnderWay) {
  request();
  ASSERT_NE(passive_, nullptr);
  active_.reset();  // while its request waits
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  int mask = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (rdma_init_qp_attr(passive_.get(), &attr, &mask) == 0 && std::chrono::steady_clock::now() < deadline)
    sched_yield();
  rdma_conn_param parameters = parameters_with();
  errno = 0;
  EXPECT_EQ(rdma_accept(passive_.get(), &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaAckCmEvent, NobodyIsToldOfADestroyedId) {
  start_resolving();
  ASSERT_TRUE(becomes_readable(active_channel_->fd));
  active_.reset();  // its event has not been fetched
  EXPECT_FALSE(has_event(active_channel_));
}

}  // namespace
}  // namespace verbena::pages
