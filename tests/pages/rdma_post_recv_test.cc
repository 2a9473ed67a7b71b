// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_post_recv(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | posts a work request to the receive queue of the queue pair associated with the rdma_cm_id | APostedRequestIsInTheIdsReceiveQueue |
// | the posted buffer will be queued to receive an incoming message sent by the remote peer | clause rdma_post_recv.receives, BuffersReceiveInTheOrderOfPosting, TheBufferReceivesAMessageOfAnotherProcess |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | AFullQueueIsMinusOneAndEnomem |
// | the user is responsible for a buffer large enough | ABufferTooSmallEndsBothSidesInError |
// | ... posted before the peer posts the send | WithoutAPostedBufferTheSendEndsInError |
// | the buffer must have been registered | ABufferThatIsNotRegisteredIsAProtectionError |
// | with the mr parameter referencing the registration | ABufferOutsideTheRegionIsRefusedByAssertion |
// | the buffer must remain registered until the receive completes | DeregisteredBeforeTheMessageIsAProtectionError |
// | only after a queue pair has been associated with the id | WithoutAQueuePairTheCallCrashes |
// | bound after rdma_create_ep | AfterRdmaCreateEpBeforeTheConnection |
// | or rdma_create_qp, if allocated using rdma_create_id | clause rdma_post_recv.before-connected |
// | the context will be returned through wr_id | clause rdma_post_recv.context, ibv_poll_cq.wr-id |
// clang-format on
//
// The page does not say it, rdma_verbs.h does (rdma_post_recvv): with an SRQ the request goes there;
// rdma_create_srq.
#include "connected_test.h"
#include "peer.h"

namespace verbena::pages {
namespace {

class RdmaPostRecv : public ConnectedTest {};

TEST_F(RdmaPostRecv, APostedRequestIsInTheIdsReceiveQueue) {
  receive_at_passive(1, 64);
  disconnect_both();
  EXPECT_EQ(received(passive_).status, IBV_WC_WR_FLUSH_ERR) << "it is flushed from there";
}

TEST_F(RdmaPostRecv, BuffersReceiveInTheOrderOfPosting) {
  for (uint64_t id = 1; id <= 3; id++) receive_at_passive(id, 64, id * 64);
  for (uint64_t id = 1; id <= 3; id++) {
    *active_memory_.data() = static_cast<uint8_t>(id);
    send_from_active(1);
    EXPECT_EQ(received(passive_).wr_id, id);
    EXPECT_EQ(*passive_memory_.data(id * 64), id);
  }
}

TEST_F(RdmaPostRecv, TheBufferReceivesAMessageOfAnotherProcess) {
  CmId listener = make_listener();
  Peer peer("hello", host_, port_of(listener));
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(rdma_get_request(listener.get(), &request), 0);
  const CmId id(request);
  create_qp(id);
  Memory memory(id.get(), 64);
  ASSERT_EQ(rdma_post_recv(id.get(), nullptr, memory.data(), 64, memory.mr()), 0);
  ASSERT_EQ(rdma_accept(id.get(), nullptr), 0);
  EXPECT_EQ(received(id).byte_len, 6u);
  EXPECT_STREQ(reinterpret_cast<char*>(memory.data()), "hello");
  EXPECT_EQ(peer.wait(), 0);
}

TEST_F(RdmaPostRecv, AFullQueueIsMinusOneAndEnomem) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(passive_->qp, &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++) receive_at_passive(i, 64);
  errno = 0;
  EXPECT_EQ(rdma_post_recv(passive_.get(), nullptr, passive_memory_.data(), 64, passive_memory_.mr()), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(RdmaPostRecv, ABufferTooSmallEndsBothSidesInError) {
  receive_at_passive(1, 49);
  send_from_active(50);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(RdmaPostRecv, WithoutAPostedBufferTheSendEndsInError) {
  rdma_conn_param parameters = impatient();
  connect_pair({.active = &parameters, .passive = &parameters});
  send_from_active(50);
  EXPECT_EQ(sent(active_).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(RdmaPostRecv, ABufferThatIsNotRegisteredIsAProtectionError) {
  Memory other(passive_.get(), 64);
  ibv_mr stale = *other.mr();
  other.deregister();
  ASSERT_EQ(rdma_post_recv(passive_.get(), nullptr, other.data(), 64, &stale), 0);
  send_from_active(50);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(sent(active_).status, IBV_WC_REM_OP_ERR);
}

// rdma_verbs.h, rdma_post_recv: assert(3).
TEST_F(RdmaPostRecv, ABufferOutsideTheRegionIsRefusedByAssertion) {
  uint8_t elsewhere[64];
  EXPECT_DEATH(rdma_post_recv(passive_.get(), nullptr, elsewhere, 64, passive_memory_.mr()), "mr->addr");
}

TEST_F(RdmaPostRecv, DeregisteredBeforeTheMessageIsAProtectionError) {
  Memory other(passive_.get(), 64);
  ASSERT_EQ(rdma_post_recv(passive_.get(), nullptr, other.data(), 64, other.mr()), 0);
  other.deregister();
  send_from_active(50);
  EXPECT_EQ(received(passive_).status, IBV_WC_LOC_PROT_ERR);
}

// rdma_verbs.h, rdma_post_recvv hands id->qp on without a look at it.
TEST_F(RdmaPostRecv, WithoutAQueuePairTheCallCrashes) {
  CmId id = make_bound_id();
  Memory memory(id.get(), 64);
  EXPECT_DEATH(rdma_post_recv(id.get(), nullptr, memory.data(), 64, memory.mr()), "");
}

TEST_F(RdmaPostRecv, AfterRdmaCreateEpBeforeTheConnection) {
  const Info there = address_info(host_, port_of(listener_), 0, RDMA_PS_TCP);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* made = nullptr;
  ASSERT_EQ(rdma_create_ep(&made, there.get(), nullptr, &attributes), 0);
  const CmId id(made);
  Memory memory(id.get(), 64);
  EXPECT_EQ(rdma_post_recv(id.get(), nullptr, memory.data(), 64, memory.mr()), 0);
}

}  // namespace
}  // namespace verbena::pages
