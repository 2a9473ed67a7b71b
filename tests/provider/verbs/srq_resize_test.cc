// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues that are made larger and smaller (ibv_modify_srq(3), IBV_SRQ_MAX_WR).
#include <atomic>
#include <thread>

#include "srq_fixture.h"

namespace verbena::test {
namespace {

class SrqResizeTest : public SrqTest {
 protected:
  void SetUp() override {
    SrqTest::SetUp();
    if (HasFatalFailure()) return;
    srq_ = make_srq(4);
    ASSERT_NE(srq_, nullptr);
    line_ = make_line();
  }
  void TearDown() override {
    line_ = {};
    SrqTest::TearDown();
  }
  int resize(uint32_t max_wr, int more = 0, uint32_t limit = 0) {
    ibv_srq_attr attr = {.max_wr = max_wr, .max_sge = 0, .srq_limit = limit};
    return ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_MAX_WR | more);
  }
  uint32_t room() {
    ibv_srq_attr attr = {};
    EXPECT_EQ(ibv_query_srq(srq_.get(), &attr), 0);
    return attr.max_wr;
  }
  // Messages use the requests first ... last, in that order.
  void use(uint64_t first, uint64_t last, size_t length = 64) {
    for (uint64_t id = first; id <= last; ++id) {
      ASSERT_EQ(carry_out(line_.sender.get(), local_.sge(0, length)), IBV_WC_SUCCESS);
      const ibv_wc wc = next_completion(receive_cq_.get());
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, id);
    }
  }

  Line line_;
};

TEST_F(SrqResizeTest, IsClaimed) { EXPECT_NE(device_.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0u); }

TEST_F(SrqResizeTest, LargerHasRoomForWhatWasAsked) {
  ASSERT_EQ(resize(100), 0);
  EXPECT_GE(room(), 100u);
  for (uint64_t id = 0; id < 100; ++id) ASSERT_EQ(post(id, 0, 64), 0) << id;
  use(0, 99);
}

TEST_F(SrqResizeTest, WhatIsPostedStaysInItsOrder) {
  for (uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  use(0, 1);
  ASSERT_EQ(resize(9), 0);
  for (uint64_t id = 4; id < 11; ++id) ASSERT_EQ(post(id, 0, 64), 0) << id;
  use(2, 4);
  ASSERT_EQ(resize(33), 0);
  for (uint64_t id = 11; id < 30; ++id) ASSERT_EQ(post(id, 0, 64), 0) << id;
  use(5, 29);
}

TEST_F(SrqResizeTest, FullAfterResizingMeansTheNewSize) {
  ASSERT_EQ(resize(8), 0);
  for (uint64_t id = 0; id < room(); ++id) ASSERT_EQ(post(id, 0, 64), 0) << id;
  EXPECT_EQ(post(99, 0, 64), ENOMEM);
  use(0, 0);
  EXPECT_EQ(post(99, 0, 64), 0);
}

TEST_F(SrqResizeTest, SmallerTakesNoMoreThanItsRoom) {
  ASSERT_EQ(resize(64), 0);
  ASSERT_EQ(resize(2), 0);
  EXPECT_EQ(room(), 2u);
  EXPECT_EQ(post(0, 0, 64), 0);
  EXPECT_EQ(post(1, 0, 64), 0);
  EXPECT_EQ(post(2, 0, 64), ENOMEM);
  use(0, 1);
  ASSERT_EQ(resize(64), 0);
  for (uint64_t id = 2; id < 66; ++id) ASSERT_EQ(post(id, 0, 64), 0) << id;
  use(2, 65);
}

TEST_F(SrqResizeTest, SmallerThanWhatIsPostedIsInvalid) {
  ASSERT_EQ(resize(16), 0);
  for (uint64_t id = 0; id < 5; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  EXPECT_EQ(resize(4), EINVAL);
  EXPECT_EQ(room(), 16u);
  EXPECT_EQ(resize(5), 0);
  use(0, 4);
}

// A slot is in use until its completion was polled.
TEST_F(SrqResizeTest, WhatWasNotPolledCounts) {
  for (uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(carry_out(line_.sender.get(), local_.sge(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(resize(3), EINVAL);
  EXPECT_EQ(resize(32), 0);
  for (uint64_t id = 0; id < 4; ++id) EXPECT_EQ(next_completion(receive_cq_.get()).wr_id, id);
  EXPECT_EQ(resize(3), 0);
}

TEST_F(SrqResizeTest, NoneOrMoreThanTheDeviceHasIsInvalid) {
  const uint32_t before = room();
  EXPECT_EQ(resize(0), EINVAL);
  EXPECT_EQ(resize(static_cast<uint32_t>(device_.max_srq_wr) + 1), EINVAL);
  EXPECT_EQ(room(), before);
  EXPECT_EQ(resize(static_cast<uint32_t>(device_.max_srq_wr)), 0);
}

TEST_F(SrqResizeTest, SmallerThanTheLimitThatIsArmedIsInvalid) {
  ASSERT_EQ(resize(16), 0);
  for (uint64_t id = 0; id < 2; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  ASSERT_EQ(arm(2), 0);
  EXPECT_EQ(resize(1), EINVAL);
  EXPECT_EQ(limit(), 2u);
  EXPECT_EQ(resize(4), 0);
  EXPECT_EQ(limit(), 2u);
}

TEST_F(SrqResizeTest, TheLimitIsThatOfTheNewSizeInOneCall) {
  EXPECT_EQ(resize(2, IBV_SRQ_LIMIT, 3), EINVAL);
  EXPECT_EQ(room(), 4u);
  EXPECT_EQ(resize(64, IBV_SRQ_LIMIT, 65), EINVAL);
  EXPECT_EQ(room(), 4u);
  ASSERT_EQ(post(0, 0, 64), 0);
  EXPECT_EQ(resize(64, IBV_SRQ_LIMIT, 60), 0);
  EXPECT_EQ(room(), 64u);
  EXPECT_EQ(next_event(), IBV_EVENT_SRQ_LIMIT_REACHED);  // one is posted
}

TEST_F(SrqResizeTest, AnUnknownAttributeIsInvalid) {
  EXPECT_EQ(resize(64, 4), EINVAL);
  EXPECT_EQ(room(), 4u);
}

class SrqResizeMessageTest : public SrqResizeTest, public ::testing::WithParamInterface<size_t> {};

// In the completion, in a bounce buffer, placed by the requester.
TEST_P(SrqResizeMessageTest, ArrivesInARequestThatWasAdded) {
  const size_t length = GetParam();
  ASSERT_EQ(resize(16), 0);
  for (uint64_t id = 0; id < 16; ++id) ASSERT_EQ(post(id, id * length, length), 0);
  for (uint64_t id = 0; id < 16; ++id) {
    local_.fill(static_cast<uint8_t>(id + 1));
    ASSERT_EQ(carry_out(line_.sender.get(), local_.sge(id * length, length)), IBV_WC_SUCCESS);
  }
  ASSERT_EQ(resize(64), 0);
  for (uint64_t id = 0; id < 16; ++id) ASSERT_EQ(next_completion(receive_cq_.get()).wr_id, id);
  for (uint64_t id = 0; id < 16; ++id) {
    local_.fill(static_cast<uint8_t>(id + 1));
    EXPECT_EQ(memcmp(remote_.data() + id * length, local_.data() + id * length, length), 0) << id;
  }
}
INSTANTIATE_TEST_SUITE_P(Length, SrqResizeMessageTest, ::testing::Values(8, 200, 5000));

// One thread sends without a break, the other posts, polls and resizes.
TEST_F(SrqResizeTest, UnderLoadNothingIsLostAndNothingOvertakes) {
  constexpr uint64_t kMessages = 4000;
  std::atomic<bool> failed{false};
  std::atomic<uint64_t> sent{0};
  std::thread sender([&] {
    ibv_wc wc;
    for (uint64_t out = 0; sent < kMessages && !failed;) {
      if (out < kMessages && out - sent < 8 && send(line_.sender.get(), local_.sge(0, 200)) == 0) ++out;
      const int n = ibv_poll_cq(cq_.get(), 1, &wc);
      if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS)) failed = true;
      if (n == 1) ++sent;
    }
  });
  uint64_t posted = 0, received = 0;
  const uint32_t sizes[] = {16, 64, 20, 300, 33, 1000};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (uint64_t round = 0; received < kMessages && !failed; ++round) {
    while (posted < kMessages && posted - received < 16 && post(posted, 0, 256) == 0) ++posted;
    ibv_wc wc[4];
    for (int i = 0, n = ibv_poll_cq(receive_cq_.get(), 4, wc); i < n; ++i)
      if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != received++) failed = true;
    if (round % 16 == 0 && resize(sizes[round / 16 % std::size(sizes)]) != 0) failed = true;
    if (std::chrono::steady_clock::now() > deadline) failed = true;
  }
  if (received < kMessages) failed = true;
  sender.join();
  EXPECT_FALSE(failed) << sent << " sent, " << received << " received";
}

}  // namespace
}  // namespace verbena::test
