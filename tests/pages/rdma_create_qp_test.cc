// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_qp(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | allocate a QP associated with the specified rdma_cm_id | clause rdma_create_qp.zero, rdma_create_id.tcp |
// | and transition it for sending and receiving | clause rdma_create_qp.transitions |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyRequestsAreMinusOneAndEinval |
// | the id must be bound to a local RDMA device | BeforeTheIdIsBoundTheCallCrashes |
// | the protection domain must be for that same device | ADomainOfAnotherContextIsMinusOneAndEinval |
// | QPs are automatically transitioned through their states | clause rdma_create_qp.transitions, DisconnectingTakesItToError |
// | ready to handle posting of receives | ItIsReadyForReceivesAtOnce |
// | if the QP is unconnected, it will be ready to post sends | clause rdma_create_qp.ud-sends |
// | no pd: the default protection domain | clause rdma_create_qp.default-pd, clause rdma_create_qp.given-pd |
// | one default protection domain is allocated per RDMA device | clause rdma_create_qp.default-pd |
// | send_cq and recv_cq are optional | WithoutQueuesTheyAreAllocated, WithQueuesThoseAreUsed, clause rdma_create_qp.cqs |
// | allocated along with corresponding completion channels | WithoutQueuesTheyAreAllocated |
// | exposed through the rdma_cm_id | WithoutQueuesTheyAreAllocated |
// | the actual capabilities will be returned through qp_init_attr | TheActualCapabilitiesAreReturned |
// | an id may only be associated with a single QP | ASecondOneIsMinusOneAndEinval, clause rdma_destroy_qp.destroys |
// | rdma_destroy_qp(3): destroy a QP allocated on the id | DestroyingItTakesItFromTheId |
// | rdma_destroy_qp(3): must be destroyed before the id | not testable: an order for the user |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaCreateQp : public IdTest {
 protected:
  void SetUp() override {
    IdTest::SetUp();
    if (!HasFatalFailure()) id_ = make_bound_id();
  }
  int create(ibv_pd* pd = nullptr) {
    errno = 0;
    return rdma_create_qp(id_.get(), pd, &attributes_);
  }

  ibv_qp_init_attr attributes_ = queue_attributes();
  CmId id_;
};

TEST_F(RdmaCreateQp, TooManyRequestsAreMinusOneAndEinval) {
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(id_->verbs, &device), 0);
  attributes_.cap.max_recv_wr = static_cast<uint32_t>(device.max_qp_wr) + 1;
  EXPECT_EQ(create(), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id_->qp, nullptr);
}

// rdma_create_qp_ex (cma.c, 44.0) hands id->verbs on, which is null.
TEST_F(RdmaCreateQp, BeforeTheIdIsBoundTheCallCrashes) {
  id_ = make_id();
  EXPECT_DEATH(create(), "");
}

TEST_F(RdmaCreateQp, ADomainOfAnotherContextIsMinusOneAndEinval) {
  ibv_context* other = ibv_open_device(id_->verbs->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  EXPECT_EQ(create(pd), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(RdmaCreateQp, ItIsReadyForReceivesAtOnce) {
  ASSERT_EQ(create(), 0);
  EXPECT_EQ(state_of(id_->qp), IBV_QPS_INIT);
  Memory memory(id_.get(), 64);
  EXPECT_EQ(rdma_post_recv(id_.get(), nullptr, memory.data(), 64, memory.mr()), 0);
}

TEST_F(RdmaCreateQp, WithoutQueuesTheyAreAllocated) {
  ASSERT_EQ(create(), 0);
  ASSERT_NE(id_->send_cq, nullptr);
  ASSERT_NE(id_->recv_cq, nullptr);
  EXPECT_NE(id_->send_cq, id_->recv_cq);
  EXPECT_EQ(id_->qp->send_cq, id_->send_cq);
  EXPECT_EQ(id_->qp->recv_cq, id_->recv_cq);
  EXPECT_NE(id_->send_cq_channel, nullptr);
  EXPECT_NE(id_->recv_cq_channel, nullptr);
  EXPECT_EQ(id_->send_cq->channel, id_->send_cq_channel);
  EXPECT_EQ(id_->recv_cq->channel, id_->recv_cq_channel);
}

TEST_F(RdmaCreateQp, WithQueuesThoseAreUsed) {
  const Cq cq(ibv_create_cq(id_->verbs, 32, nullptr, nullptr, 0));
  attributes_.send_cq = attributes_.recv_cq = cq.get();
  ASSERT_EQ(create(), 0);
  EXPECT_EQ(id_->qp->send_cq, cq.get());
  EXPECT_EQ(id_->qp->recv_cq, cq.get());
  EXPECT_EQ(id_->send_cq, nullptr) << "only what the rdma_cm made is exposed";
  EXPECT_EQ(id_->recv_cq, nullptr);
  id_.reset();  // before its CQ
}

TEST_F(RdmaCreateQp, TheActualCapabilitiesAreReturned) {
  attributes_.cap.max_send_wr = 13;
  attributes_.cap.max_recv_wr = 5;
  ASSERT_EQ(create(), 0);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(id_->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_GE(attributes_.cap.max_send_wr, 13u);
  EXPECT_EQ(attributes_.cap.max_send_wr, attr.cap.max_send_wr);
  EXPECT_EQ(attributes_.cap.max_recv_wr, attr.cap.max_recv_wr);
  EXPECT_EQ(attributes_.cap.max_send_sge, attr.cap.max_send_sge);
  EXPECT_EQ(attributes_.cap.max_recv_sge, attr.cap.max_recv_sge);
  EXPECT_EQ(attributes_.cap.max_inline_data, attr.cap.max_inline_data);
}

TEST_F(RdmaCreateQp, ASecondOneIsMinusOneAndEinval) {
  ASSERT_EQ(create(), 0);
  EXPECT_EQ(create(), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaCreateQp, DestroyingItTakesItFromTheId) {
  ASSERT_EQ(create(), 0);
  rdma_destroy_qp(id_.get());
  EXPECT_EQ(id_->qp, nullptr);
  EXPECT_EQ(id_->send_cq, nullptr);
  EXPECT_EQ(id_->recv_cq, nullptr);
}

class RdmaCreateQpConnected : public ConnectedTest {};

TEST_F(RdmaCreateQpConnected, DisconnectingTakesItToError) {
  disconnect_both();
  EXPECT_EQ(state_of(active_->qp), IBV_QPS_ERR);
  EXPECT_EQ(state_of(passive_->qp), IBV_QPS_ERR);
}

}  // namespace
}  // namespace verbena::pages
