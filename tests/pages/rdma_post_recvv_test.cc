// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_recvv(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a single work request | TheBuffersAreOneRequest |
// | to the receive queue of the queue pair associated with the rdma_cm_id | the same |
// | the posted buffers will be queued to receive an incoming message | clause rdma_post_recvv.receives |
// | sgl: a scatter-gather list; nsge: the number of its entries | OnlySoManyEntriesAsSaidAreUsed, AnEmptyListTakesAnEmptyMessage |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyEntriesAreMinusOneAndEinval, AFullQueueIsMinusOneAndEnomem |
// | the total buffer space is large enough | TheTotalSpaceCounts, ATotalTooSmallEndsBothSidesInError |
// | the buffers must have been registered | OneBufferThatIsNotRegisteredIsAProtectionError |
// | and must remain registered until the receive completes | DeregisteredBeforeTheMessageIsAProtectionError |
// | only after a queue pair has been associated | as rdma_post_recv, which calls this function |
// | bound after rdma_create_ep or rdma_create_qp | clause rdma_post_recvv.before-connected |
// | the context will be returned through wr_id | clause rdma_post_recvv.context, ibv_poll_cq.wr-id |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaPostRecvv : public ConnectedTest {
 protected:
  int post(std::vector<ibv_sge> list, uint64_t id = 1) {
    return rdma_post_recvv(passive_.get(), context_of(id), list.data(), static_cast<int>(list.size()));
  }
  ibv_sge part(size_t offset, size_t length) { return passive_memory_.sge(offset, length); }
};

TEST_F(RdmaPostRecvv, TheBuffersAreOneRequest) {
  ASSERT_EQ(post({part(0, 64), part(64, 64)}), 0);
  disconnect_both();
  ASSERT_EQ(received(passive_).status, IBV_WC_WR_FLUSH_ERR);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(passive_->recv_cq, 1, &wc), 0) << "one completion for both";
}

TEST_F(RdmaPostRecvv, OnlySoManyEntriesAsSaidAreUsed) {
  ibv_sge list[2] = {part(0, 20), part(100, 20)};
  ASSERT_EQ(rdma_post_recvv(passive_.get(), nullptr, list, 1), 0);
  send_from_active(30);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(RdmaPostRecvv, AnEmptyListTakesAnEmptyMessage) {
  ASSERT_EQ(rdma_post_recvv(passive_.get(), nullptr, nullptr, 0), 0);
  send_from_active(0);
  EXPECT_EQ(received(passive_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaPostRecvv, TooManyEntriesAreMinusOneAndEinval) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(passive_->qp, &attr, IBV_QP_CAP, &init), 0);
  errno = 0;
  EXPECT_EQ(post(std::vector<ibv_sge>(attr.cap.max_recv_sge + 1, part(0, 1))), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaPostRecvv, AFullQueueIsMinusOneAndEnomem) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(passive_->qp, &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++) ASSERT_EQ(post({part(0, 8), part(8, 8)}), 0);
  errno = 0;
  EXPECT_EQ(post({part(0, 8)}), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(RdmaPostRecvv, TheTotalSpaceCounts) {
  ASSERT_EQ(post({part(0, 10), part(100, 10), part(200, 10)}), 0);
  send_from_active(30);
  EXPECT_EQ(received(passive_).status, IBV_WC_SUCCESS);
}

TEST_F(RdmaPostRecvv, ATotalTooSmallEndsBothSidesInError) {
  ASSERT_EQ(post({part(0, 10), part(100, 10), part(200, 9)}), 0);
  send_from_active(30);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(RdmaPostRecvv, OneBufferThatIsNotRegisteredIsAProtectionError) {
  uint8_t elsewhere[32];
  const ibv_sge none = {.addr = reinterpret_cast<uintptr_t>(elsewhere), .length = 32, .lkey = 0};
  ASSERT_EQ(post({part(0, 10), none}), 0);
  send_from_active(30);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RdmaPostRecvv, DeregisteredBeforeTheMessageIsAProtectionError) {
  Memory other(passive_.get(), 64);
  ASSERT_EQ(post({part(0, 10), other.sge(0, 64)}), 0);
  other.deregister();
  send_from_active(30);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace verbena::pages
