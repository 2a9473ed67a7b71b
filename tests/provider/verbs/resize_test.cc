// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_resize_cq(3).
#include <atomic>
#include <thread>

#include "pair.h"

namespace verbena::test {
namespace {

class ResizeTest : public PairTest {
 protected:
  void write(uint64_t id) {
    ibv_sge sge = local_.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1, id);
    ASSERT_EQ(post(&wr), 0);
  }
  void expect_completions(uint64_t first, uint64_t last) {
    for (uint64_t id = first; id <= last; id++) EXPECT_EQ(next_completion(cq_.get()).wr_id, id);
    EXPECT_TRUE(is_empty(cq_.get()));
  }
};

TEST_F(ResizeTest, AGrownCqTellsItsSize) {
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 1000), 0);
  EXPECT_GE(cq_->cqe, 1000);
}

TEST_F(ResizeTest, AGrownCqHoldsMore) {
  requester_.reset();
  cq_ = make_cq(2);
  make_pair();
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 16), 0);
  for (uint64_t id = 1; id <= 16; id++) write(id);
  expect_completions(1, 16);
}

TEST_F(ResizeTest, AShrunkCqGoesOn) {
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 4), 0);
  EXPECT_GE(cq_->cqe, 4);
  for (uint64_t id = 1; id <= 4; id++) write(id);
  expect_completions(1, 4);
}

TEST_F(ResizeTest, WhatWasThereComesFirst) {
  for (uint64_t id = 1; id <= 3; id++) write(id);
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 128), 0);
  for (uint64_t id = 4; id <= 6; id++) write(id);
  expect_completions(1, 6);
}

TEST_F(ResizeTest, SeveralTimesWithoutPolling) {
  uint64_t id = 0;
  for (int entries : {128, 32, 256, 16}) {
    for (int i = 0; i < 3; i++) write(++id);
    ASSERT_EQ(ibv_resize_cq(cq_.get(), entries), 0);
  }
  expect_completions(1, id);
  write(++id);
  expect_completions(id, id);
}

// "cqe must be at least the number of unpolled entries in the CQ" (ibv_resize_cq(3)).
TEST_F(ResizeTest, ToFewerThanWaitToBePolledIsRefused) {
  for (uint64_t id = 1; id <= 5; id++) write(id);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), 4), EINVAL);
  EXPECT_GE(cq_->cqe, 64);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), 5), 0);
  expect_completions(1, 5);
}

TEST_F(ResizeTest, WhatAnOldRingHoldsCountsToo) {
  for (uint64_t id = 1; id <= 5; id++) write(id);
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 128), 0);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), 4), EINVAL);
  expect_completions(1, 5);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), 4), 0);
}

TEST_F(ResizeTest, ToNothingOrMoreThanTheDeviceHasIsRefused) {
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(context_.get(), &device), 0);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), -1), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq_.get(), device.max_cqe + 1), EINVAL);
}

TEST_F(ResizeTest, MessagesNotPolledYetArriveWhole) {
  local_.fill(3);
  for (size_t i = 0; i < 4; i++) {
    ASSERT_EQ(receive(remote_.sge(i * 100, 100)), 0);
    ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(i * 100, 100)).status, IBV_WC_SUCCESS);
    ASSERT_EQ(ibv_resize_cq(responder_cq_.get(), i % 2 == 0 ? 128 : 32), 0);
  }
  for (size_t i = 0; i < 4; i++) EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(400));
}

TEST_F(ResizeTest, ALaterWriteIsNotUndoneByAnEarlierMessage) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_resize_cq(responder_cq_.get(), 128), 0);
  local_.fill(9);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(64));
}

TEST_F(ResizeTest, ACqWithAnOldRingCanBeDestroyed) {
  requester_.reset();
  cq_ = make_cq(8);
  make_pair();
  write(1);
  ASSERT_EQ(ibv_resize_cq(cq_.get(), 64), 0);
  requester_.reset();
  cq_.reset();
}

// Both CQs are resized all the time while one thread sends; completions come once each and in order.
TEST_F(ResizeTest, UnderLoadNothingIsLostAndNothingOvertakes) {
  constexpr uint64_t kMessages = 3000;
  for (uint64_t id = 0; id < 16; id++) ASSERT_EQ(receive(remote_.sge(0, 256), id), 0);
  std::atomic<bool> failed{false};
  std::thread sender([&] {
    ibv_sge sge = local_.sge(0, 64);
    for (uint64_t id = 0; id < kMessages && !failed; id++) {
      ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1, id);
      int error;
      while ((error = post(&wr)) == ENOMEM && !failed) sched_yield();
      if (error != 0) failed = true;
    }
  });
  uint64_t sent = 0;
  uint64_t received = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (int round = 0; (sent < kMessages || received < kMessages) && !failed; round++) {
    ibv_wc wc[4];
    for (int i = 0, n = ibv_poll_cq(cq_.get(), 4, wc); i < n; i++)
      if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != sent++) failed = true;
    for (int i = 0, n = ibv_poll_cq(responder_cq_.get(), 4, wc); i < n; i++) {
      if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != received++) failed = true;
      if (receive(remote_.sge(0, 256), received + 15) != 0) failed = true;
    }
    if (round % 8 == 0) {
      ibv_cq* cq = round % 16 == 0 ? cq_.get() : responder_cq_.get();
      if (ibv_resize_cq(cq, round % 32 < 16 ? 128 : 40) != 0) failed = true;
    }
    if (std::chrono::steady_clock::now() > deadline) failed = true;
  }
  sender.join();
  EXPECT_FALSE(failed) << sent << " sent, " << received << " received";
}

}  // namespace
}  // namespace verbena::test
