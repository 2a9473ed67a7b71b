// SPDX-License-Identifier: BSD-2-Clause
//
// Completion moderation (ibv_modify_cq(3)): fewer events than completions.
#include <poll.h>

#include <chrono>

#include "pair.h"

namespace verbena::test {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

class ModerationTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    channel_.reset(ibv_create_comp_channel(context_.get()));
    ASSERT_NE(channel_, nullptr);
    requester_.reset();
    cq_ = make_cq(64, channel_.get());
    ASSERT_NE(cq_, nullptr);
    make_pair();
    ASSERT_EQ(ibv_req_notify_cq(cq_.get(), 0), 0);
  }
  void TearDown() override {  // before the channel
    requester_.reset();
    cq_.reset();
  }

  int moderate(uint16_t count, uint16_t period) {
    ibv_modify_cq_attr attr = {};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {.cq_count = count, .cq_period = period};
    return ibv_modify_cq(cq_.get(), &attr);
  }
  void complete(int count) {
    for (int i = 0; i < count; i++) {
      ibv_sge sge = local_.sge(0, 8);
      ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
      ASSERT_EQ(post(&wr), 0);
    }
  }
  bool event_within(int milliseconds) {
    pollfd fd = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
    return poll(&fd, 1, milliseconds) == 1;
  }
  void take_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_TRUE(event_within(10'000));
    ASSERT_EQ(ibv_get_cq_event(channel_.get(), &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
  }

  Channel channel_;
};

TEST_F(ModerationTest, TheDeviceClaimsIt) {
  ibv_device_attr_ex attr = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &attr), 0);
  EXPECT_GT(attr.cq_mod_caps.max_cq_count, 0u);
  EXPECT_GT(attr.cq_mod_caps.max_cq_period, 0u);
}

TEST_F(ModerationTest, TheEventComesWithTheLastOfTheCount) {
  ASSERT_EQ(moderate(4, 0), 0);
  complete(3);
  EXPECT_FALSE(event_within(0));
  complete(1);
  EXPECT_TRUE(event_within(0));
  take_event();
}

TEST_F(ModerationTest, EachEventBeginsANewCount) {
  ASSERT_EQ(moderate(2, 0), 0);
  complete(2);
  take_event();
  ASSERT_EQ(ibv_req_notify_cq(cq_.get(), 0), 0);
  complete(1);
  EXPECT_FALSE(event_within(0));
  complete(1);
  EXPECT_TRUE(event_within(0));
  take_event();
}

TEST_F(ModerationTest, FewerThanTheCountAreToldWhenThePeriodIsOver) {
  ASSERT_EQ(moderate(100, 20'000), 0);
  const auto begin = steady_clock::now();
  complete(3);
  take_event();
  EXPECT_GE(steady_clock::now() - begin, microseconds(20'000));
}

TEST_F(ModerationTest, APeriodAloneDelaysTheEvent) {
  ASSERT_EQ(moderate(0, 20'000), 0);
  const auto begin = steady_clock::now();
  complete(1);
  take_event();
  EXPECT_GE(steady_clock::now() - begin, microseconds(20'000));
}

TEST_F(ModerationTest, ThePeriodsEndTellsNothingOfWhatHasBeenPolled) {
  ASSERT_EQ(moderate(2, 20'000), 0);
  complete(1);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_FALSE(event_within(60));
}

TEST_F(ModerationTest, TheCountDoesNotWaitForThePeriod) {
  ASSERT_EQ(moderate(2, UINT16_MAX), 0);
  const auto begin = steady_clock::now();
  complete(2);
  take_event();
  EXPECT_LT(steady_clock::now() - begin, microseconds(UINT16_MAX));
}

TEST_F(ModerationTest, WithoutItTheFirstCompletionIsTold) {
  complete(1);
  EXPECT_TRUE(event_within(0));
  take_event();
}

TEST_F(ModerationTest, EndingItTellsWhatItKeptBack) {
  ASSERT_EQ(moderate(4, 0), 0);
  complete(1);
  ASSERT_EQ(moderate(0, 0), 0);
  EXPECT_TRUE(event_within(0));
  take_event();
}

TEST_F(ModerationTest, UnknownAttributesAreRefused) {
  ibv_modify_cq_attr attr = {};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE << 1;
  EXPECT_EQ(ibv_modify_cq(cq_.get(), &attr), EINVAL);
}

}  // namespace
}  // namespace verbena::test
