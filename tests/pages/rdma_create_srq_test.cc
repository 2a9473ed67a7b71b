// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_srq(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | allocate a SRQ associated with the specified rdma_cm_id | TheQueueIsTheIds, AQueuePairOfTheIdUsesIt |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyRequestsAreMinusOneAndEinval |
// | the id must be bound to a local RDMA device | BeforeTheIdIsBoundTheCallCrashes |
// | the protection domain must be for that same device | not checked by 44.0: ADomainOfAnotherContextMakesItThere |
// | after being allocated, the SRQ will be ready to handle posting of receives | ReceivesMayBePostedAtOnce, ReceivesArePostedThereByRdmaPostRecv |
// | no protection domain: a default protection domain | WithoutADomainItIsTheDefaultOne, WithADomainItIsThatOne |
// | one default protection domain is allocated per RDMA device | rdma_create_qp |
// | ext.xrc.cq is optional: a CQ and a channel will be allocated for an XRC SRQ, exposed through the id | AnXrcQueueGetsACompletionQueueAndAChannel, AnXrcQueueUsesTheCompletionQueueGiven |
// | the actual capabilities will be returned through the attr parameter | TheActualCapabilitiesAreReturned |
// | an id may only be associated with a single SRQ | not so: rdma_create_srq_ex (cma.c, 44.0) forgets the first; not tested, it would leak |
// | rdma_destroy_srq(3): destroy an SRQ allocated on the id | DestroyingItTakesItFromTheId |
// clang-format on
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaCreateSrq : public ConnectedTest {
 protected:
  static ibv_srq_init_attr attributes(uint32_t requests = 16) {
    ibv_srq_init_attr attr = {};
    attr.attr = {.max_wr = requests, .max_sge = 2, .srq_limit = 0};
    return attr;
  }
  static int create(const CmId& id, ibv_pd* pd = nullptr, uint32_t requests = 16) {
    ibv_srq_init_attr attr = attributes(requests);
    errno = 0;
    return rdma_create_srq(id.get(), pd, &attr);
  }
  // Accepts with an SRQ of 16 requests.
  void connect_with_srq() {
    connect_pair({.before_accept = [](rdma_cm_id* id) {
      rdma_destroy_qp(id);
      ibv_srq_init_attr attr = attributes();
      ASSERT_EQ(rdma_create_srq(id, nullptr, &attr), 0) << strerror(errno);
      ibv_qp_init_attr queues = queue_attributes();
      ASSERT_EQ(rdma_create_qp(id, nullptr, &queues), 0) << strerror(errno);
    }});
  }
};

TEST_F(RdmaCreateSrq, TheQueueIsTheIds) {
  CmId id = make_bound_id();
  ASSERT_EQ(create(id), 0);
  EXPECT_NE(id->srq, nullptr);
}

TEST_F(RdmaCreateSrq, AQueuePairOfTheIdUsesIt) {
  CmId id = make_bound_id();
  ASSERT_EQ(create(id), 0);
  create_qp(id);
  ASSERT_NE(id->qp, nullptr);
  EXPECT_EQ(id->qp->srq, id->srq);
}

TEST_F(RdmaCreateSrq, TooManyRequestsAreMinusOneAndEinval) {
  CmId id = make_bound_id();
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(id->verbs, &device), 0);
  EXPECT_EQ(create(id, nullptr, static_cast<uint32_t>(device.max_srq_wr) + 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(id->srq, nullptr);
}

// rdma_create_srq_ex (cma.c, 44.0) hands id->verbs on, which is null.
TEST_F(RdmaCreateSrq, BeforeTheIdIsBoundTheCallCrashes) {
  CmId id = make_id();
  EXPECT_DEATH(create(id), "");
}

// rdma_create_srq_ex (cma.c, 44.0) compares nothing, and libibverbs goes by the domain.
TEST_F(RdmaCreateSrq, ADomainOfAnotherContextMakesItThere) {
  CmId id = make_bound_id();
  ibv_context* other = ibv_open_device(id->verbs->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  ASSERT_EQ(create(id, pd), 0);
  EXPECT_EQ(id->srq->context, other);
  rdma_destroy_srq(id.get());
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(RdmaCreateSrq, ReceivesMayBePostedAtOnce) {
  CmId id = make_bound_id();
  ASSERT_EQ(create(id), 0);
  Memory memory(id.get(), 64);
  ibv_sge sge = memory.sge(0, 64);
  ibv_recv_wr wr = {.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(id->srq, &wr, &bad), 0);
}

TEST_F(RdmaCreateSrq, ReceivesArePostedThereByRdmaPostRecv) {
  connect_with_srq();
  receive_at_passive(5, 64);
  send_from_active(8);
  EXPECT_EQ(received(passive_).wr_id, 5u);
}

TEST_F(RdmaCreateSrq, WithoutADomainItIsTheDefaultOne) {
  CmId id = make_bound_id();
  ASSERT_EQ(create(id), 0);
  EXPECT_EQ(id->srq->pd, id->pd);
}

TEST_F(RdmaCreateSrq, WithADomainItIsThatOne) {
  CmId id = make_bound_id();
  const Pd pd(ibv_alloc_pd(id->verbs));
  ASSERT_EQ(create(id, pd.get()), 0);
  EXPECT_EQ(id->srq->pd, pd.get());
  id.reset();  // before its domain
}

// An id for XRC_RECV comes from rdma_create_ep only.
class RdmaCreateXrcSrq : public RdmaCreateSrq {
 protected:
  void SetUp() override {
    IdTest::SetUp();
    if (HasFatalFailure()) return;
    rdma_addrinfo hints = {};
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_IB;
    hints.ai_qp_type = IBV_QPT_XRC_RECV;
    rdma_addrinfo* found = nullptr;
    ASSERT_EQ(rdma_getaddrinfo(host_.c_str(), "0", &hints, &found), 0);
    const Info info(found);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_ep(&id, info.get(), nullptr, nullptr), 0) << strerror(errno);
    id_.reset(id);
  }
  void TearDown() override { id_.reset(); }
  CmId id_;
};

TEST_F(RdmaCreateXrcSrq, AnXrcQueueGetsACompletionQueueAndAChannel) {
  ASSERT_EQ(create(id_), 0) << strerror(errno);
  EXPECT_NE(id_->recv_cq, nullptr);
  EXPECT_NE(id_->recv_cq_channel, nullptr);
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(id_->srq, &number), 0) << "it is an XRC SRQ";
}

TEST_F(RdmaCreateXrcSrq, AnXrcQueueUsesTheCompletionQueueGiven) {
  const Cq cq(ibv_create_cq(id_->verbs, 16, nullptr, nullptr, 0));
  ibv_srq_init_attr_ex attr = {};
  attr.attr = {.max_wr = 16, .max_sge = 2, .srq_limit = 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.cq = cq.get();
  ASSERT_EQ(rdma_create_srq_ex(id_.get(), &attr), 0) << strerror(errno);
  EXPECT_EQ(id_->recv_cq, nullptr);
  id_.reset();  // before its CQ
}

TEST_F(RdmaCreateSrq, TheActualCapabilitiesAreReturned) {
  CmId id = make_bound_id();
  ibv_srq_init_attr attr = attributes(13);
  ASSERT_EQ(rdma_create_srq(id.get(), nullptr, &attr), 0);
  ibv_srq_attr actual = {};
  ASSERT_EQ(ibv_query_srq(id->srq, &actual), 0);
  EXPECT_GE(attr.attr.max_wr, 13u);
  EXPECT_EQ(attr.attr.max_wr, actual.max_wr);
  EXPECT_EQ(attr.attr.max_sge, actual.max_sge);
}

TEST_F(RdmaCreateSrq, DestroyingItTakesItFromTheId) {
  CmId id = make_bound_id();
  ASSERT_EQ(create(id), 0);
  rdma_destroy_srq(id.get());
  EXPECT_EQ(id->srq, nullptr);
}

}  // namespace
}  // namespace verbena::pages
