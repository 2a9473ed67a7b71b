// SPDX-License-Identifier: BSD-2-Clause
//
// XRC domains, SRQs and receiving queue pairs: which fields the program gets filled in, what reaches the
// emulator.
#include <fcntl.h>

#include "fixture.h"

namespace verbena::test {
namespace {

class XrcTest : public ObjectTest {
 protected:
  void SetUp() override {
    ObjectTest::SetUp();
    ibv_xrcd_init_attr attr = {};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = 4;
    attr.oflags = O_CREAT;
    xrcd_ = ibv_open_xrcd(context_, &attr);
    ASSERT_NE(xrcd_, nullptr);
  }
  void TearDown() override {
    fake.error = 0;
    EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
    ObjectTest::TearDown();
  }
  ibv_qp_init_attr_ex receiver() const {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_context = &fake;
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd_;
    return attr;
  }
  ibv_srq_init_attr_ex srq_init() const {
    ibv_srq_init_attr_ex attr = {};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd_;
    attr.xrcd = xrcd_;
    attr.cq = cq_;
    return attr;
  }
  ibv_qp_open_attr opening() const {
    ibv_qp_open_attr attr = {};
    attr.comp_mask =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
    attr.qp_num = 0x99;
    attr.xrcd = xrcd_;
    attr.qp_context = &fake;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return attr;
  }
  ibv_xrcd* xrcd_ = nullptr;
};

TEST_F(XrcTest, ADomainKnowsItsContext) { EXPECT_EQ(xrcd_->context, context_); }

TEST_F(XrcTest, DescriptorAndFlagsReachTheEmulator) {
  EXPECT_EQ(fake.xrcd_fd, 4);
  EXPECT_EQ(fake.xrcd_flags, O_CREAT);
}

TEST_F(XrcTest, ADomainNeedsDescriptorAndFlags) {
  ibv_xrcd_init_attr attr = {};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD;
  EXPECT_EQ(ibv_open_xrcd(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, ABusyDomainStays) {
  fake.error = EBUSY;
  EXPECT_EQ(ibv_close_xrcd(xrcd_), EBUSY);
}

TEST_F(XrcTest, AnSrqBelongsToDomainAndCq) {
  ibv_srq_init_attr_ex attr = srq_init();
  ibv_srq* srq = ibv_create_srq_ex(context_, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_TRUE(fake.srq_is_xrc);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(XrcTest, AnSrqWithoutACqIsInvalid) {
  ibv_srq_init_attr_ex attr = srq_init();
  attr.comp_mask &= ~uint32_t{IBV_SRQ_INIT_ATTR_CQ};
  EXPECT_EQ(ibv_create_srq_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, AReceiverHasEveryFieldFilledIn) {
  ibv_qp_init_attr_ex attr = receiver();
  ibv_qp* qp = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->context, context_);
  EXPECT_EQ(qp->qp_context, &fake);
  EXPECT_EQ(qp->qp_num, 0x4711u);
  EXPECT_EQ(qp->qp_type, IBV_QPT_XRC_RECV);
  EXPECT_EQ(qp->pd, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(XrcTest, AReceiverNeedsADomain) {
  ibv_qp_init_attr_ex attr = receiver();
  attr.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS;
  EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, AHandleNamesTheQueuePair) {
  ibv_qp_open_attr attr = opening();
  ibv_qp* qp = ibv_open_qp(context_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(fake.opened_qpn, 0x99u);
  EXPECT_EQ(qp->qp_context, &fake);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(XrcTest, DestroyingClosesTheHandle) {
  ibv_qp_open_attr attr = opening();
  ibv_qp* qp = ibv_open_qp(context_, &attr);
  const auto handle = reinterpret_cast<uintptr_t>(qp);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(fake.closed_handle, handle);
}

TEST_F(XrcTest, OnlyReceiversAreOpened) {
  ibv_qp_open_attr attr = opening();
  attr.qp_type = IBV_QPT_XRC_SEND;
  EXPECT_EQ(ibv_open_qp(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::test
