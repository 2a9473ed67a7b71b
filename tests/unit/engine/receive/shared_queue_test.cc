// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a receive queue with many producers.
#include "engine/receive/shared_receive_queue.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/process.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

struct Queue : Scene {
  Queue() { EXPECT_EQ(make_shared_queue(process(), pd->handle, 4, 2, &srq), 0); }
  ~Queue() { unmake_shared_queue(srq); }
  Process& process() { return *context->process; }
  int post(uint64_t wr_id, Sges sges = {}) {
    ibv_recv_wr wr{wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
    ibv_recv_wr* bad = nullptr;
    const char* why = nullptr;
    return post_to_shared_queue(*srq, &wr, &bad, &why);
  }
  uint32_t take(uint32_t worker) {
    uint32_t slot = UINT32_MAX;
    EXPECT_TRUE(srq->ring.take(worker, &slot));
    return slot;
  }
  // Of no process on this node.
  static constexpr uint32_t kDead = Worker{1000, 7}.pack();
  Srq* srq = nullptr;
};

TEST(SharedQueue, KeepsTheNameOfWhatIsPosted) {
  Queue queue;
  ASSERT_EQ(queue.post(0x1234), 0);
  EXPECT_EQ(wr_id_of(*queue.srq, queue.take(1)), 0x1234u);
}

TEST(SharedQueue, IsFullWhenEverySlotIsTakenAndNotFreed) {
  Queue queue;
  const uint32_t alive = queue.process().membership().worker();
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  for (int i = 0; i < 4; ++i) queue.take(alive);
  EXPECT_EQ(queue.post(4), ENOMEM);
}

TEST(SharedQueue, UsesASlotAgainWhenItWasFreed) {
  Queue queue;
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  free_slot(*queue.srq, queue.take(1));
  EXPECT_EQ(queue.post(4), 0);
}

TEST(SharedQueue, FreesASlotOnlyOnce) {
  Queue queue;
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  const uint32_t slot = queue.take(queue.process().membership().worker());
  free_slot(*queue.srq, slot);
  free_slot(*queue.srq, slot);
  ASSERT_EQ(queue.post(4), 0);
  EXPECT_EQ(queue.post(5), ENOMEM);
}

TEST(SharedQueue, RefusesAListThatIsTooLong) {
  Queue queue;
  EXPECT_EQ(queue.post(1, Sges(3)), EINVAL);
}

TEST(SharedQueue, ReclaimsWhatADeadTakerHad) {
  Queue queue;
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  queue.take(Queue::kDead);
  EXPECT_EQ(queue.post(4), 0);
}

// By then the order word that named the taker has been used again.
TEST(SharedQueue, ReclaimsWhatADeadTakerHadLapsAgo) {
  Queue queue;
  ASSERT_EQ(queue.post(0), 0);
  queue.take(Queue::kDead);
  for (uint64_t i = 1; i < 40; ++i) {
    ASSERT_EQ(queue.post(i), 0);
    free_slot(*queue.srq, queue.take(1));
  }
  for (uint64_t i = 40; i < 44; ++i) EXPECT_EQ(queue.post(i), 0) << i;
}

TEST(SharedQueue, LeavesALivingTakerWhatItHas) {
  Queue queue;
  ASSERT_EQ(queue.post(0), 0);
  queue.take(queue.process().membership().worker());
  for (uint64_t i = 1; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  EXPECT_EQ(queue.post(4), ENOMEM);
}

TEST(SharedQueue, KeysThatHoldArePrevalidated) {
  Queue queue;
  Region region(queue.pd.get(), 64);
  ASSERT_EQ(queue.post(0, {region.sge(0, 64)}), 0);
  const uint32_t epoch = queue.process().view().header().mr_epoch.load();
  EXPECT_EQ(queue.srq->ring.wqe(queue.take(1)).epoch, epoch & 0xffffff);
}

TEST(SharedQueue, KeysThatDoNotHoldAreNotPrevalidated) {
  Queue queue;
  ASSERT_EQ(queue.post(0, {{0x1000, 16, 0x77777777}}), 0);
  EXPECT_EQ(queue.srq->ring.wqe(queue.take(1)).epoch, ReadyWord::kNeverValid);
}

TEST(SharedQueue, KnowsHowManyBytesARequestTakes) {
  Queue queue;
  Region region(queue.pd.get(), 64);
  ASSERT_EQ(queue.post(0, {region.sge(0, 40), region.sge(40, 24)}), 0);
  EXPECT_EQ(queue.srq->ring.wqe(queue.take(1)).length, 64u);
}

TEST(SharedQueue, ForgetsEverythingThatIsPosted) {
  Queue queue;
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  forget_posted(*queue.srq);
  EXPECT_EQ(queue.srq->ring.posted(), 0u);
}

TEST(SharedQueue, IsEmptyAgainAfterForgetting) {
  Queue queue;
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(queue.post(i), 0);
  forget_posted(*queue.srq);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(queue.post(i), 0) << i;
}

}  // namespace
}  // namespace verbena
