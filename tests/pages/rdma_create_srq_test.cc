// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_srq(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | allocate a SRQ associated with the specified rdma_cm_id | clause rdma_create_srq.zero, clause rdma_create_srq.receives |
// | returns 0 on success | everywhere |
// | or -1 on error; errno will be set | TooManyRequestsAreMinusOneAndEinval |
// | the id must be bound to a local RDMA device | BeforeTheIdIsBoundTheCallCrashes |
// | the protection domain must be for that same device | not checked by 44.0: ADomainOfAnotherContextMakesItThere |
// | after being allocated, the SRQ will be ready to handle posting of receives | clause rdma_create_srq.receives, clause rdma_create_srq.receives |
// | no protection domain: a default protection domain | clause rdma_create_srq.default-pd, clause rdma_create_srq.given-pd |
// | one default protection domain is allocated per RDMA device | rdma_create_qp |
// | ext.xrc.cq is optional: a CQ and a channel will be allocated for an XRC SRQ, exposed through the id | clause rdma_create_srq.xrc-cq, AnXrcQueueUsesTheCompletionQueueGiven |
// | the actual capabilities will be returned through the attr parameter | clause rdma_create_srq.cap |
// | an id may only be associated with a single SRQ | not so: rdma_create_srq_ex (cma.c, 44.0) forgets the first; not tested, it would leak |
// | rdma_destroy_srq(3): destroy an SRQ allocated on the id | clause rdma_destroy_srq.destroys |
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
};

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

}  // namespace
}  // namespace verbena::pages
