// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_cm: SRQs of identifiers.
#include "support/cm.h"

namespace conformance::cm_srq_chapter {
namespace {

class Fixture : public CmTest {
 protected:
  static ibv_srq_init_attr srq_attributes() { return {nullptr, {8, 1, 0}}; }
  void claims_srq() {
    if (device().attributes().max_srq == 0) throw NotClaimed{"max_srq is 0"};
  }
  // near_ is bound, with an SRQ.
  void make_srq() {
    claims_srq();
    near_ = make_bound();
    ibv_srq_init_attr attr = srq_attributes();
    const int result = CALL(rdma_create_srq(near_, nullptr, &attr));
    if (result != 0 || near_->srq == nullptr)
      throw Deviation{"an SRQ; seen: " + std::to_string(result) + ", " + errno_text(errno), Where::current()};
  }
};

CONFORMANCE_TEST(cm_verbs, SrqOfAnIdentifier, "rdma_create_srq.zero", "rdma_create_srq.receives",
                 "rdma_create_srq.default-pd", "rdma_destroy_srq.destroys") {
  claims_srq();  // none of the clauses is claimed
  ABOUT("rdma_create_srq.zero") make_srq();
  {
    const About about("rdma_create_srq.default-pd");
    EXPECT_EQ(near_->srq->pd, near_->pd);
  }
  {
    const About about("rdma_create_srq.receives");
    const Buffer buffer(64);
    const Mr mr = make_mr(near_->pd, buffer);
    ibv_sge element = {buffer.address(), 64, mr->lkey};
    ibv_recv_wr wr = {1, nullptr, &element, 1}, *bad = nullptr;
    EXPECT_SUCCEEDS(ibv_post_srq_recv(near_->srq, &wr, &bad));
  }
  const About about("rdma_destroy_srq.destroys");
  rdma_destroy_srq(near_);
  EXPECT_EQ(near_->srq, nullptr);
  ibv_srq_init_attr attr = srq_attributes();
  EXPECT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
}

CONFORMANCE_TEST(cm_verbs, SecondSrqOfAnIdentifier, "rdma_create_srq.once") {
  make_srq();
  ibv_srq* const first = near_->srq;
  ibv_srq_init_attr attr = srq_attributes();
  if (CALL(rdma_create_srq(near_, nullptr, &attr)) != 0) {
    observe("rdma_create_srq.once", "a second one gives -1, " + errno_text(errno));
    return;
  }
  observe("rdma_create_srq.once", "a second one takes the place of the first, which stays");
  rdma_destroy_srq(near_);
  EXPECT_SUCCEEDS(ibv_destroy_srq(first));
}

CONFORMANCE_TEST(cm_verbs, QpOfAnIdentifierWithAnSrqReceivesFromIt, "rdma_create_srq.receives") {
  claims_srq();
  be_asked();
  ibv_srq_init_attr attr = srq_attributes();
  ASSERT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
  make_qp(near_);
  EXPECT_EQ(near_->qp->srq, near_->srq);
  const Buffer buffer(64);
  const Mr mr = make_mr(near_->pd, buffer);
  int mark = 0;
  ASSERT_SUCCEEDS(rdma_post_recv(near_, &mark, buffer.data(), 64, mr));
  ASSERT_EQ(accept(), 0);
  const EventFacts there = far().event(RDMA_CM_EVENT_ESTABLISHED);
  if (is_infiniband(near_)) {
    EXPECT_EQ(there.connection.srq, 1);
  }
  ASSERT_EQ(far().post(IBV_WR_SEND, 0, 8), 0);
  const ibv_wc wc = completion(near_->recv_cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(&mark));
}

CONFORMANCE_TEST(cm_verbs, SrqOfThePdGiven, "rdma_create_srq.given-pd", "rdma_create_srq.cap") {
  claims_srq();
  near_ = make_bound();
  Pd pd(CALL(ibv_alloc_pd(near_->verbs)));
  ASSERT_NE(pd, nullptr);
  ibv_srq_init_attr attr = {nullptr, {5, 1, 0}};
  ASSERT_SUCCEEDS(rdma_create_srq(near_, pd, &attr));
  EXPECT_EQ(near_->srq->pd, pd);
  {
    const About about("rdma_create_srq.cap");
    EXPECT_GE(attr.attr.max_wr, 5u);
    EXPECT_GE(attr.attr.max_sge, 1u);
  }
  near_ = CmId();
  EXPECT_SUCCEEDS(pd.destroy());
}

CONFORMANCE_TEST(cm_verbs, SrqBeyondTheLimitsIsRefused, "rdma_create_srq.beyond") {
  claims_srq();
  near_ = make_bound();
  ibv_srq_init_attr attr = srq_attributes();
  attr.attr.max_wr = static_cast<uint32_t>(device().attributes().max_srq_wr) + 1;
  const uint32_t asked = attr.attr.max_wr;
  const int result = CALL(rdma_create_srq(near_, nullptr, &attr));
  if (result != 0) {
    EXPECT_EQ(result, -1);  // errno is the provider's, and ibv_create_srq(3) promises none
    EXPECT_EQ(near_->srq, nullptr);
    return;
  }
  EXPECT_GE(attr.attr.max_wr, asked);  // rdma_create_srq(3), NOTES: the actual capabilities
}

// Identifiers for XRC_RECV come from rdma_create_ep alone.
CONFORMANCE_TEST(cm_verbs, XrcSrqGetsACq, "rdma_create_srq.xrc-cq") {
  claims_srq();
  if ((device().attributes().device_cap_flags & IBV_DEVICE_XRC) == 0)
    throw NotClaimed{"device_cap_flags has no XRC"};
  rdma_addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_IB;
  hints.ai_qp_type = IBV_QPT_XRC_RECV;
  ASSERT_SUCCEEDS(rdma_getaddrinfo(address().host().c_str(), "0", &hints, &found));
  const AddressInfo info(found);
  rdma_cm_id* id = nullptr;
  ASSERT_SUCCEEDS(rdma_create_ep(&id, info, nullptr, nullptr));
  near_ = CmId(id);
  ibv_srq_init_attr attr = srq_attributes();
  ASSERT_SUCCEEDS(rdma_create_srq(near_, nullptr, &attr));
  ASSERT_NE(near_->recv_cq, nullptr);
  ASSERT_NE(near_->recv_cq_channel, nullptr);
  EXPECT_EQ(near_->recv_cq->channel, near_->recv_cq_channel);
  uint32_t number = 0;
  EXPECT_SUCCEEDS(ibv_get_srq_num(near_->srq, &number));
}

}  // namespace
}  // namespace conformance::cm_srq_chapter
