// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_ack_cm_event(3) and rdma_destroy_id(3), sentence by sentence: the one waits for the other.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | all events allocated by rdma_get_cm_event must be released, one-to-one | clause rdma_destroy_id.waits |
// | frees the event structure and any memory that it references | not testable: it may not be looked at |
// | returns 0 on success, or -1 on error; errno will be set | clause rdma_ack_cm_event.zero, WithoutAnEventItIsMinusOneAndEinval |
// | destroys the specified id | clause rdma_destroy_id.zero |
// | and cancels any outstanding asynchronous operation | DestroyingCancelsWhatIsUnderWay, clause rdma_destroy_id.cancels |
// | must free any associated QP before | not testable: an order for the user |
// | and ack all related events | clause rdma_destroy_id.waits |
// clang-format on
#include <sched.h>

#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaAckCmEvent : public AsyncTest {};

TEST_F(RdmaAckCmEvent, WithoutAnEventItIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_ack_cm_event(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

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

}  // namespace
}  // namespace verbena::pages
