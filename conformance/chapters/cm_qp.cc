// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: QPs of identifiers.
#include "support/cm.h"

namespace conformance::cm_qp_chapter {
namespace {

using Fixture = CmTest;

CONFORMANCE_TEST(cm_connect, QpOfTheDefaultPd, "rdma_create_qp.zero", "rdma_create_qp.default-pd",
                 "rdma_create_qp.cqs", "rdma_create_qp.once") {
  const CmId id = make_bound(), other = make_bound();
  ibv_qp_init_attr attr = queue_attributes(id);
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  ASSERT_NE(id->qp, nullptr);
  {
    const About about("rdma_create_qp.default-pd");
    EXPECT_EQ(id->qp->pd, id->pd);
    make_qp(other);
    EXPECT_EQ(other->qp->pd, id->qp->pd) << "one for each device";
  }
  {
    const About about("rdma_create_qp.cqs");
    ASSERT_NE(id->send_cq, nullptr);
    ASSERT_NE(id->recv_cq, nullptr);
    EXPECT_EQ(id->qp->send_cq, id->send_cq);
    EXPECT_EQ(id->qp->recv_cq, id->recv_cq);
    ASSERT_NE(id->send_cq_channel, nullptr);
    ASSERT_NE(id->recv_cq_channel, nullptr);
    EXPECT_EQ(id->send_cq->channel, id->send_cq_channel);
    EXPECT_EQ(id->recv_cq->channel, id->recv_cq_channel);
  }
  const About about("rdma_create_qp.once");
  ibv_qp_init_attr again = queue_attributes(id);
  EXPECT_MINUS_ONE(rdma_create_qp(id, nullptr, &again));
}

CONFORMANCE_TEST(cm_connect, QpOfTheCqGiven, "rdma_create_qp.cqs") {
  CmId id = make_bound();
  const Cq cq(CALL(ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0)));
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attr = queue_attributes(id);
  attr.send_cq = cq;
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  EXPECT_EQ(id->qp->send_cq, cq);
  EXPECT_EQ(id->qp->recv_cq, id->recv_cq);
  id = CmId();  // before its CQ
}

CONFORMANCE_TEST(cm_connect, ActualCapabilitiesAreReturned, "rdma_create_qp.cap") {
  const CmId id = make_bound();
  QpSpec spec;
  spec.send_depth = 5;
  spec.receive_depth = 3;
  ibv_qp_init_attr attr = queue_attributes(id, spec);
  const ibv_qp_cap asked = attr.cap;
  ASSERT_SUCCEEDS(rdma_create_qp(id, nullptr, &attr));
  EXPECT_GE(attr.cap.max_send_wr, asked.max_send_wr);
  EXPECT_GE(attr.cap.max_recv_wr, asked.max_recv_wr);
  EXPECT_GE(attr.cap.max_send_sge, asked.max_send_sge);
  EXPECT_GE(attr.cap.max_recv_sge, asked.max_recv_sge);
  const Buffer buffer(64);
  const Mr mr = make_mr(id->pd, buffer);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; ++i)
    ASSERT_SUCCEEDS(rdma_post_recv(id, nullptr, buffer.data(), 64, mr)) << "receive " << i;
}

CONFORMANCE_TEST(cm_connect, QpTakesReceivesAtOnce, "rdma_create_qp.receives",
                 "rdma_post_recv.before-connected", "rdma_post_recvv.before-connected") {
  const CmId id = make_bound();
  make_qp(id);
  const Buffer buffer(64);
  const Mr mr = make_mr(id->pd, buffer);
  EXPECT_SUCCEEDS(rdma_post_recv(id, nullptr, buffer.data(), 64, mr));
  const About about("rdma_post_recvv.before-connected");
  ibv_sge element = {buffer.address(), 64, mr->lkey};
  EXPECT_SUCCEEDS(rdma_post_recvv(id, nullptr, &element, 1));
}

CONFORMANCE_TEST(cm_connect, UnconnectedQpSendsAtOnce, "rdma_create_qp.ud-sends", "rdma_create_id.udp") {
  prepare(RDMA_PS_UDP);
  ABOUT("rdma_create_qp.ud-sends")
  EXPECT_EQ(attributes_of(near_->qp).qp_state, IBV_QPS_RTS) << "nothing has been connected";
  const EventFacts found = look_up();
  const Ah ah = address_handle(found);
  ASSERT_EQ(far().post_receive(0, 256), 0);
  const Buffer buffer(8);
  const Mr mr = make_mr(near_->pd, buffer);
  const About about("rdma_create_qp.ud-sends");
  ASSERT_SUCCEEDS(
      rdma_post_ud_send(near_, nullptr, buffer.data(), 8, mr, IBV_SEND_SIGNALED, ah, found.datagram.qp_num));
  EXPECT_EQ(completion(near_->send_cq).status, IBV_WC_SUCCESS);
  ABOUT("rdma_create_id.udp") EXPECT_EQ(far().received().byte_len, 48u);
}

CONFORMANCE_TEST(cm_connect, QpOfThePdGiven, "rdma_create_qp.given-pd", "rdma_destroy_qp.destroys") {
  CmId id = make_bound();
  Pd pd(CALL(ibv_alloc_pd(id->verbs)));
  ASSERT_NE(pd, nullptr);
  ibv_qp_init_attr attr = queue_attributes(id);
  ASSERT_SUCCEEDS(rdma_create_qp(id, pd, &attr));
  EXPECT_EQ(id->qp->pd, pd);
  EXPECT_EQ(id->pd, pd);
  EXPECT_REFUSED(ibv_dealloc_pd(pd));
  const About about("rdma_destroy_qp.destroys");
  rdma_destroy_qp(id);
  EXPECT_EQ(id->qp, nullptr);
  make_qp(id);
  EXPECT_NE(id->qp, nullptr);
  id = CmId();
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(cm_connect, PdOfAnotherContextIsRefused, "rdma_create_qp.foreign-pd") {
  const CmId id = make_bound();
  const Pd foreign = make_pd(device());  // the rdma_cm opens contexts of its own
  ASSERT_NE(foreign->context, id->verbs);
  ibv_qp_init_attr attr = queue_attributes(id);
  EXPECT_MINUS_ONE(rdma_create_qp(id, foreign, &attr));
  EXPECT_EQ(id->qp, nullptr);
}

CONFORMANCE_TEST(cm_connect, QpBeyondTheLimitsIsRefused, "rdma_create_qp.beyond") {
  const CmId id = make_bound();
  ibv_qp_init_attr attr = queue_attributes(id);
  const uint32_t asked = static_cast<uint32_t>(device().attributes().max_qp_wr) + 1;
  attr.cap.max_send_wr = asked;
  const int result = CALL(rdma_create_qp(id, nullptr, &attr));
  if (result != 0) {
    EXPECT_EQ(result, -1);  // errno is the provider's, and ibv_create_qp(3) promises none
    EXPECT_EQ(id->qp, nullptr);
    return;
  }
  EXPECT_GE(attr.cap.max_send_wr, asked);
}

}  // namespace
}  // namespace conformance::cm_qp_chapter
