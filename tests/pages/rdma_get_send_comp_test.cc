// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_send_comp(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a completed work request for a send, RDMA read, or RDMA write operation | RetrievesSendReadAndWrite |
// | information is returned through wc; for details see ibv_poll_cq | RetrievesSendReadAndWrite |
// | with the wr_id set to the context of the request | RetrievesSendReadAndWrite |
// | returns the number of returned completions (0 or 1) | ReturnsOneForEachCompletion; 0 is not testable: rdma_verbs.h loops until there is one |
// | or -1 on error; errno will be set | ReturnsMinusOneAndErrno |
// | polls the send completion queue associated with the id | DoesNotTakeReceiveCompletions |
// | if a completion is not found, the call blocks until a request completes | BlocksUntilARequestCompletes |
// | only on ids that do not share CQs, and maintain separate CQs for sends and receives | not testable: an order for the user |
// clang-format on
#include <fcntl.h>

#include <future>

#include "remote_memory_test.h"

namespace verbena::pages {
namespace {

class RdmaGetSendComp : public RemoteMemoryTest {};

TEST_F(RdmaGetSendComp, RetrievesSendReadAndWrite) {
  receive_at_passive(1, 64);
  ASSERT_EQ(rdma_post_send(active_.get(), context_of(1), active_memory_.data(), 8, active_memory_.mr(), 0),
            0);
  ASSERT_EQ(rdma_post_read(active_.get(), context_of(2), active_memory_.data(), 8, active_memory_.mr(), 0,
                           readable_.address(), readable_.mr()->rkey),
            0);
  ASSERT_EQ(rdma_post_write(active_.get(), context_of(3), active_memory_.data(), 8, active_memory_.mr(), 0,
                            writable_.address(), writable_.mr()->rkey),
            0);
  const ibv_wc_opcode expected[] = {IBV_WC_SEND, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE};
  for (uint64_t i = 0; i < 3; i++) {
    const ibv_wc wc = sent(active_);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, expected[i]);
    EXPECT_EQ(wc.wr_id, i + 1);
  }
}

TEST_F(RdmaGetSendComp, ReturnsOneForEachCompletion) {
  for (int i = 0; i < 2; i++) {
    receive_at_passive(1, 64);
    send_from_active(8);
  }
  ibv_wc wc;
  EXPECT_EQ(rdma_get_send_comp(active_.get(), &wc), 1);
  EXPECT_EQ(rdma_get_send_comp(active_.get(), &wc), 1);
}

// rdma_verbs.h: what ibv_get_cq_event says of a channel that does not wait.
TEST_F(RdmaGetSendComp, ReturnsMinusOneAndErrno) {
  const int fd = active_->send_cq_channel->fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_wc wc;
  errno = 0;
  EXPECT_EQ(rdma_get_send_comp(active_.get(), &wc), -1);
  EXPECT_EQ(errno, EAGAIN);
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

TEST_F(RdmaGetSendComp, BlocksUntilARequestCompletes) {
  auto completed = std::async(std::launch::async, [this] { return sent(active_); });
  EXPECT_EQ(completed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  receive_at_passive(1, 64);
  send_from_active(8);
  EXPECT_EQ(completed.get().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::pages
