// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_recv_comp(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a completed work request for a receive operation | clause rdma_get_recv_comp.one |
// | information is returned through wc; for details see ibv_poll_cq | clause rdma_get_recv_comp.one |
// | with the wr_id set to the context of the request | clause rdma_get_recv_comp.one |
// | returns the number of returned completions (0 or 1) | ReturnsOneForEachCompletion; 0 is not testable: rdma_verbs.h loops until there is one |
// | or -1 on error; errno will be set | clause rdma_get_recv_comp.error |
// | polls the receive completion queue associated with the id | DoesNotTakeSendCompletions |
// | if a completion is not found, the call blocks until a request completes | clause rdma_get_recv_comp.blocks, DisconnectingWakesIt |
// | only on ids that do not share CQs, and maintain separate CQs for sends and receives | not testable: an order for the user |
// clang-format on
#include <future>

#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaGetRecvComp : public ConnectedTest {};

TEST_F(RdmaGetRecvComp, ReturnsOneForEachCompletion) {
  for (int i = 0; i < 2; i++) {
    receive_at_passive(1, 64);
    send_from_active(8);
  }
  ibv_wc wc;
  EXPECT_EQ(rdma_get_recv_comp(passive_.get(), &wc), 1);
  EXPECT_EQ(rdma_get_recv_comp(passive_.get(), &wc), 1);
}

TEST_F(RdmaGetRecvComp, DoesNotTakeSendCompletions) {
  receive_at_passive(1, 64);
  ASSERT_EQ(rdma_post_recv(active_.get(), context_of(5), active_memory_.data(64), 64, active_memory_.mr()),
            0);
  send_from_active(8);
  ASSERT_EQ(rdma_post_send(passive_.get(), nullptr, passive_memory_.data(100), 8, passive_memory_.mr(), 0),
            0);
  EXPECT_EQ(received(active_).wr_id, 5u);
  EXPECT_EQ(sent(active_).opcode, IBV_WC_SEND) << "still there";
}

TEST_F(RdmaGetRecvComp, DisconnectingWakesIt) {
  receive_at_passive(1, 64);
  auto completed = std::async(std::launch::async, [this] { return received(passive_); });
  disconnect_both();
  EXPECT_EQ(completed.get().status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace verbena::pages
