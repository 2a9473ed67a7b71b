// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_ud_send(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the send queue of the queue pair associated with the rdma_cm_id | clause rdma_post_ud_send.sends |
// | the contents of the posted buffer will be sent to the specified destination queue pair | clause rdma_post_ud_send.sends, ud.source |
// | (with RDMA_UDP_QKEY: rdma_verbs.h) | TheDestinationsKeyIsThatOfThePortSpace |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | AFullQueueIsMinusOneAndEnomem |
// | the destination has queued a receive request before | WithoutAReceiveTheMessageIsLost |
// | for flags, see ibv_post_send | clause rdma_post_ud_send.inline, SignaledAsksForACompletion |
// | unless inline, the buffer must have been registered | WithoutARegionItIsAProtectionError |
// | must remain registered until the send completes | not testable: what comes of it otherwise is open |
// | the context will be returned through wr_id | clause rdma_post_ud_send.context, ibv_poll_cq.wr-id |
// clang-format on
#include "datagram_test.h"

namespace verbena::pages {
namespace {

class RdmaPostUdSend : public UdpTest {
 protected:
  int post(size_t length, ibv_mr* mr, int flags = 0, uint64_t id = 1) {
    errno = 0;
    return rdma_post_ud_send(active_.get(), context_of(id), active_memory_.data(), length, mr, flags,
                             ah_.get(), remote_.qp_num);
  }
};

TEST_F(RdmaPostUdSend, TheDestinationsKeyIsThatOfThePortSpace) {
  EXPECT_EQ(remote_.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
}

TEST_F(RdmaPostUdSend, AFullQueueIsMinusOneAndEnomem) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_send_wr; i++) ASSERT_EQ(post(8, active_memory_.mr()), 0);
  EXPECT_EQ(post(8, active_memory_.mr()), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(RdmaPostUdSend, WithoutAReceiveTheMessageIsLost) {
  *active_memory_.data() = 1;
  ASSERT_EQ(post(1, active_memory_.mr()), 0);
  ASSERT_EQ(sent(active_).status, IBV_WC_SUCCESS);
  receive_at_passive(1);
  *active_memory_.data() = 2;
  ASSERT_EQ(post(1, active_memory_.mr()), 0);
  ASSERT_EQ(received(passive_).status, IBV_WC_SUCCESS);
  EXPECT_EQ(*passive_memory_.data(kGrh), 2);
}

TEST_F(RdmaPostUdSend, SignaledAsksForACompletion) {
  rdma_destroy_qp(active_.get());
  ibv_qp_init_attr attributes = queue_attributes(IBV_QPT_UD);
  attributes.sq_sig_all = 0;
  ASSERT_EQ(rdma_create_qp(active_.get(), nullptr, &attributes), 0) << strerror(errno);
  ASSERT_EQ(post(8, active_memory_.mr(), 0, 1), 0);
  ASSERT_EQ(post(8, active_memory_.mr(), IBV_SEND_SIGNALED, 2), 0);
  EXPECT_EQ(sent(active_).wr_id, 2u);
}

TEST_F(RdmaPostUdSend, WithoutARegionItIsAProtectionError) {
  ASSERT_EQ(post(8, nullptr), 0);
  EXPECT_EQ(sent(active_).status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace verbena::pages
