// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_send_comp(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a completed work request for a send, RDMA read, or RDMA write operation | clause rdma_get_send_comp.one |
// | information is returned through wc; for details see ibv_poll_cq | clause rdma_get_send_comp.one |
// | with the wr_id set to the context of the request | clause rdma_get_send_comp.one |
// | returns the number of returned completions (0 or 1) | ReturnsOneForEachCompletion; 0 is not testable: rdma_verbs.h loops until there is one |
// | or -1 on error; errno will be set | clause rdma_get_send_comp.error |
// | polls the send completion queue associated with the id | DoesNotTakeReceiveCompletions |
// | if a completion is not found, the call blocks until a request completes | clause rdma_get_send_comp.blocks |
// | only on ids that do not share CQs, and maintain separate CQs for sends and receives | not testable: an order for the user |
// clang-format on
#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaGetSendComp : public RemoteMemoryTest {};

TEST_F(RdmaGetSendComp, ReturnsOneForEachCompletion) {
  for (int i = 0; i < 2; i++) {
    receive_at_passive(1, 64);
    send_from_active(8);
  }
  ibv_wc wc;
  EXPECT_EQ(rdma_get_send_comp(active_.get(), &wc), 1);
  EXPECT_EQ(rdma_get_send_comp(active_.get(), &wc), 1);
}

TEST_F(RdmaGetSendComp, DoesNotTakeReceiveCompletions) {
  ASSERT_EQ(rdma_post_recv(active_.get(), context_of(1), active_memory_.data(), 64, active_memory_.mr()), 0);
  receive_at_passive(1, 64);
  ASSERT_EQ(rdma_post_send(passive_.get(), nullptr, passive_memory_.data(100), 8, passive_memory_.mr(), 0),
            0);
  ASSERT_EQ(sent(passive_).status, IBV_WC_SUCCESS);
  ASSERT_EQ(rdma_post_send(active_.get(), context_of(2), active_memory_.data(100), 8, active_memory_.mr(), 0),
            0);
  EXPECT_EQ(sent(active_).wr_id, 2u);
  EXPECT_EQ(received(active_).wr_id, 1u) << "still there";
}

}  // namespace
}  // namespace verbena::pages
