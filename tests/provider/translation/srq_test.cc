// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues: which fields the program gets filled in, what reaches the emulator, and which errno
// comes back.
#include <chrono>
#include <future>

#include "fixture.h"

namespace verbena::test {
namespace {

class SrqTest : public ObjectTest {
 protected:
  void SetUp() override {
    ObjectTest::SetUp();
    ibv_srq_init_attr attr = {};
    attr.srq_context = &fake;
    attr.attr.max_wr = 100;
    srq_ = ibv_create_srq(pd_, &attr);
    ASSERT_NE(srq_, nullptr);
    max_wr_ = attr.attr.max_wr;
  }
  void TearDown() override {
    fake.error = 0;
    if (srq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    }
    fake.srq_limit = 0;
    ObjectTest::TearDown();
  }
  ibv_srq* srq_ = nullptr;
  uint32_t max_wr_ = 0;
};

TEST_F(SrqTest, HasEveryFieldFilledIn) {
  EXPECT_EQ(srq_->context, context_);
  EXPECT_EQ(srq_->srq_context, &fake);
  EXPECT_EQ(srq_->pd, pd_);
  EXPECT_EQ(srq_->handle, 15u);
  EXPECT_EQ(fake.user_handle, reinterpret_cast<uintptr_t>(srq_));
}

TEST_F(SrqTest, CreateTellsTheRealCapabilities) { EXPECT_EQ(max_wr_, 256u); }

TEST_F(SrqTest, HasANumber) {
  uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq_, &number), 0);
  EXPECT_EQ(number, 0x815u);
}

TEST_F(SrqTest, ModifyAndQueryReachTheEmulator) {
  ibv_srq_attr attr = {};
  attr.srq_limit = 7;
  EXPECT_EQ(ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT), 0);
  attr.srq_limit = 0;
  EXPECT_EQ(ibv_query_srq(srq_, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 7u);
}

TEST_F(SrqTest, ARefusedModificationSetsErrno) {
  ibv_srq_attr attr = {};
  fake.error = EINVAL;
  errno = 0;
  EXPECT_EQ(ibv_modify_srq(srq_, &attr, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SrqTest, PostingReachesTheEmulator) {
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq_, &wr, &bad), 0);
  EXPECT_EQ(fake.received, &wr);
}

TEST_F(SrqTest, AQueuePairKnowsItsSrq) {
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.srq = srq_;
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->srq, srq_);
  EXPECT_TRUE(fake.qp_has_srq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(SrqTest, AnSrqOfAnotherContextIsInvalid) {
  ibv_context stranger = {};
  ibv_srq foreign = {};
  foreign.context = &stranger;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.srq = &foreign;
  EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SrqTest, ABusyOneStays) {
  fake.error = EBUSY;
  EXPECT_EQ(ibv_destroy_srq(srq_), EBUSY);
}

TEST_F(SrqTest, DestroyWaitsForTheAcknowledgements) {
  fake.async_events = 1;
  auto destroyed = std::async(std::launch::async, [this] { return ibv_destroy_srq(srq_); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  ibv_async_event event = {};
  event.element.srq = srq_;
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  ibv_ack_async_event(&event);
  ASSERT_EQ(destroyed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(destroyed.get(), 0);
  srq_ = nullptr;
  fake.async_events = 0;
}

TEST_F(SrqTest, DestroySaysWhatItWaitsFor) {
  fake.async_events = 1;
  const std::string name = "SRQ " + std::to_string(srq_->handle);
  testing::internal::CaptureStderr();
  auto destroyed = std::async(std::launch::async, [this] { return ibv_destroy_srq(srq_); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("ibv_destroy_srq: " + name +
                      ": waits for 1 of 1 asynchronous events, which ibv_get_async_event has returned, to be "
                      "acknowledged by ibv_ack_async_event"),
            std::string::npos)
      << said;
  ibv_async_event event = {};
  event.element.srq = srq_;
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  ibv_ack_async_event(&event);
  ASSERT_EQ(destroyed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  srq_ = nullptr;
  fake.async_events = 0;
}

// What was matched is read from an extended CQ, as on mlx5.
TEST_F(SrqTest, TagMatchingNeedsAnExtendedCq) {
  ibv_srq_init_attr_ex attr = {};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.srq_type = IBV_SRQT_TM;
  attr.pd = pd_;
  EXPECT_EQ(ibv_create_srq_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::test
