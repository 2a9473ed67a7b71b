// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_send(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue of the queue pair associated with the rdma_cm_id | clause rdma_post_send.sends, ibv_poll_cq.qp-num |
// | the contents of the posted buffer will be sent to the remote peer | clause rdma_post_send.sends, TheContentsArriveInAnotherProcessAndComeBack |
// | mr: optional; flags: optional | clause rdma_post_send.inline |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | AFullQueueIsMinusOneAndEnomem |
// | the remote peer has queued a receive request before | clause rdma_connect.rnr-retry, clause rdma_get_send_comp.blocks |
// | for a list of supported flags, see ibv_post_send | clause rdma_post_send.flags, SolicitedWakesWhoAskedForThatOnly, InlineTakesTheContentsAtOnce, FenceIsAccepted |
// | unless inline, the buffer must have been registered | WithoutARegionItIsAProtectionError |
// | with the mr parameter referencing the registration | ABufferOutsideTheRegionIsAProtectionError |
// | (inline data have a limit: ibv_create_qp(3)) | MoreThanTheInlineLimitIsMinusOneAndAnErrno |
// | the buffer must remain registered until the send completes | not testable: what comes of it otherwise is open |
// | may not be posted until it has been connected | BeforeTheConnectionItIsMinusOneAndEinval |
// | (nor afterwards) | AfterTheConnectionTheSendIsFlushed |
// | the context will be returned through wr_id | clause rdma_post_send.context, ibv_poll_cq.wr-id |
// clang-format on
#include "connected_test.h"
#include "peer.h"

namespace verbena::pages {
namespace {

class RdmaPostSend : public ConnectedTest {
 protected:
  int post(size_t length, ibv_mr* mr, int flags = 0) {
    errno = 0;
    return rdma_post_send(active_.get(), nullptr, active_memory_.data(), length, mr, flags);
  }
};

TEST_F(RdmaPostSend, TheContentsArriveInAnotherProcessAndComeBack) {
  Peer peer("echo", host_);
  const Info there = address_info(host_, peer.port(), 0, RDMA_PS_TCP);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* made = nullptr;
  ASSERT_EQ(rdma_create_ep(&made, there.get(), nullptr, &attributes), 0);
  const CmId id(made);
  Memory out(id.get(), 2000), in(id.get(), 2000);
  out.fill(9);
  ASSERT_EQ(rdma_post_recv(id.get(), nullptr, in.data(), 2000, in.mr()), 0);
  ASSERT_EQ(rdma_connect(id.get(), nullptr), 0) << strerror(errno);
  ASSERT_EQ(rdma_post_send(id.get(), nullptr, out.data(), 2000, out.mr(), 0), 0);
  EXPECT_EQ(sent(id).status, IBV_WC_SUCCESS);
  EXPECT_EQ(received(id).byte_len, 2000u);
  EXPECT_TRUE(out.equals(in, 2000));
  rdma_disconnect(id.get());
  EXPECT_EQ(peer.wait(), 0);
}

TEST_F(RdmaPostSend, AFullQueueIsMinusOneAndEnomem) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_send_wr; i++) ASSERT_EQ(post(8, active_memory_.mr()), 0);
  EXPECT_EQ(post(8, active_memory_.mr()), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(RdmaPostSend, SolicitedWakesWhoAskedForThatOnly) {
  receive_at_passive(1, 64);
  receive_at_passive(2, 64);
  ASSERT_EQ(ibv_req_notify_cq(passive_->recv_cq, 1), 0);
  ASSERT_EQ(post(8, active_memory_.mr()), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  EXPECT_FALSE(becomes_readable(passive_->recv_cq_channel->fd, std::chrono::milliseconds(0)));
  ASSERT_EQ(post(8, active_memory_.mr(), IBV_SEND_SOLICITED), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(becomes_readable(passive_->recv_cq_channel->fd));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(passive_->recv_cq_channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

TEST_F(RdmaPostSend, InlineTakesTheContentsAtOnce) {
  *active_memory_.data() = 1;
  ASSERT_EQ(post(1, nullptr, IBV_SEND_INLINE), 0);  // waits for a receive
  *active_memory_.data() = 2;
  receive_at_passive(1, 64);
  ASSERT_EQ(received(passive_).status, IBV_WC_SUCCESS);
  EXPECT_EQ(*passive_memory_.data(), 1);
}

TEST_F(RdmaPostSend, FenceIsAccepted) {
  receive_at_passive(1, 64);
  ASSERT_EQ(post(8, active_memory_.mr(), IBV_SEND_FENCE), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaPostSend, WithoutARegionItIsAProtectionError) {
  receive_at_passive(1, 64);
  ASSERT_EQ(post(8, nullptr), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostSend, ABufferOutsideTheRegionIsAProtectionError) {
  receive_at_passive(1, 64);
  uint8_t elsewhere[8] = {};
  ASSERT_EQ(rdma_post_send(active_.get(), nullptr, elsewhere, 8, active_memory_.mr(), 0), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostSend, MoreThanTheInlineLimitIsMinusOneAndAnErrno) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  ASSERT_LT(attr.cap.max_inline_data, kSize);
  EXPECT_EQ(post(attr.cap.max_inline_data + 1, nullptr, IBV_SEND_INLINE), -1);
  EXPECT_TRUE(errno == ENOMEM || errno == EINVAL)
      << strerror(errno) << ": mlx5 says the former, rxe the latter";
}

TEST_F(RdmaPostSend, BeforeTheConnectionItIsMinusOneAndEinval) {
  CmId id = make_resolved_id(listener_);
  create_qp(id);
  Memory memory(id.get(), 64);
  errno = 0;
  EXPECT_EQ(rdma_post_send(id.get(), nullptr, memory.data(), 8, memory.mr(), 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaPostSend, AfterTheConnectionTheSendIsFlushed) {
  disconnect_both();
  ASSERT_EQ(post(8, active_memory_.mr()), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace verbena::pages
