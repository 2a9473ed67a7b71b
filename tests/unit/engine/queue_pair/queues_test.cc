// SPDX-License-Identifier: BSD-2-Clause
//
// Queues are finite: when a slot is free again, what is flushed, what a full completion queue does.
#include <errno.h>
#include <gtest/gtest.h>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr unsigned kUnsignaled = 0;

struct Queues : ::testing::Test {
  Pair pair{{.send_wr = 4, .recv_wr = 4}};
  Region memory{pair.pd.get(), 4096};
  int write(uint64_t wr_id, unsigned flags) {
    Sges sges{memory.sge(0, 8)};
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sges, wr_id, flags);
    wr.wr.rdma = {memory.address(64), memory.rkey()};
    return post(*pair.a, wr);
  }
};

TEST_F(Queues, UnsignaledRequestsFillTheSendQueue) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(write(i, kUnsignaled), 0);
  EXPECT_EQ(write(4, kUnsignaled), ENOMEM);
}

TEST_F(Queues, ALaterCompletionFreesTheSlotsBeforeIt) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(write(i, kUnsignaled), 0);
  ASSERT_EQ(write(3, IBV_SEND_SIGNALED), 0);
  ASSERT_EQ(write(4, kUnsignaled), ENOMEM);
  EXPECT_EQ(pair.a.sent().wr_id, 3u);
  for (uint64_t i = 4; i < 8; ++i) EXPECT_EQ(write(i, kUnsignaled), 0);
  EXPECT_EQ(write(8, kUnsignaled), ENOMEM);
}

TEST_F(Queues, ACompletionFreesNoSlotBehindIt) {
  ASSERT_EQ(write(0, IBV_SEND_SIGNALED), 0);
  for (uint64_t i = 1; i < 4; ++i) ASSERT_EQ(write(i, kUnsignaled), 0);
  pair.a.sent();
  EXPECT_EQ(write(4, kUnsignaled), 0);
  EXPECT_EQ(write(5, kUnsignaled), ENOMEM);
}

TEST_F(Queues, OnlySignaledRequestsComplete) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(write(i, kUnsignaled), 0);
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
}

TEST_F(Queues, TheRequestsBeforeARefusedOneArePosted) {
  Sges good{memory.sge(0, 8)}, too_many(5, memory.sge(0, 1));
  ibv_send_wr second = request(IBV_WR_RDMA_WRITE, too_many, 2), first = request(IBV_WR_RDMA_WRITE, good, 1);
  first.wr.rdma = {memory.address(64), memory.rkey()};
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(post_send(*pair.a, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(pair.a.sent().wr_id, 1u);
}

TEST_F(Queues, AReceiveSlotIsFreeWhenItsCompletionIsPolled) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, 4), ENOMEM);
  ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}), 0);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, 4), ENOMEM) << "not polled yet";
  EXPECT_EQ(pair.b.received().wr_id, 0u);
  EXPECT_EQ(receive(*pair.b, {memory.sge(0, 8)}, 4), 0);
}

TEST_F(Queues, ReceivesAreUsedInTheOrderOfPostingOverManyLaps) {
  for (uint64_t i = 0; i < 1100; ++i) {
    ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
    ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}, i), 0);
    ASSERT_EQ(pair.b.received().wr_id, i);
    ASSERT_EQ(pair.a.sent().wr_id, i);
  }
}

TEST_F(Queues, NothingIsTakenInReset) {
  const Owned<Qp> fresh = make_qp(pair.pd.get(), pair.a.send_cq.get(), pair.a.recv_cq.get());
  EXPECT_EQ(receive(fresh.get(), {memory.sge(0, 8)}), EINVAL);
  EXPECT_EQ(send(fresh.get(), {memory.sge(0, 8)}), EINVAL);
}

TEST_F(Queues, ReceivesAreTakenFromInitOn) {
  const Owned<Qp> fresh = make_qp(pair.pd.get(), pair.a.send_cq.get(), pair.a.recv_cq.get());
  ASSERT_EQ(to_init(fresh.get()), 0);
  EXPECT_EQ(receive(fresh.get(), {memory.sge(0, 8)}), 0);
  EXPECT_EQ(send(fresh.get(), {memory.sge(0, 8)}), EINVAL);
}

// ---- flushing ---------------------------------------------------------------------------------------------

TEST_F(Queues, EveryRequestThatWaitsIsFlushedInOrderSignaledOrNot) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, i, kUnsignaled), 0);
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 4);
  for (uint64_t i = 0; i < wcs.size(); ++i) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wcs[i].qp_num, pair.a.number());
  }
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
}

TEST_F(Queues, EveryReceiveIsFlushedInOrderAfterThoseThatWereUsed) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}), 0);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_ERR), 0);
  const auto wcs = completions(pair.b.recv_cq.get(), 4);
  for (uint64_t i = 0; i < wcs.size(); ++i) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, i < 2 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
}

TEST_F(Queues, WhatIsPostedInErrorIsFlushed) {
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 7, kUnsignaled), 0);
  ASSERT_EQ(receive(*pair.a, {memory.sge(0, 8)}, 8), 0);
  const ibv_wc sent = pair.a.sent(), received = pair.a.received();
  EXPECT_EQ(sent.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(sent.wr_id, 7u);
  EXPECT_EQ(received.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(received.wr_id, 8u);
}

TEST_F(Queues, SlotsOfFlushedRequestsAreFreeWhenPolled) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, i, kUnsignaled), 0);
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), ENOMEM);
  completions(pair.a.send_cq.get(), 4);
  EXPECT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
}

TEST_F(Queues, ResetForgetsEverything) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}), 0);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0);
  EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
  ASSERT_EQ(to_init(*pair.b), 0);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
}

TEST_F(Queues, APairWorksAgainAfterReset) {
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}), 0);
  for (Side* side : {&pair.a, &pair.b}) ASSERT_EQ(to_state(**side, IBV_QPS_RESET), 0);
  connect(*pair.a, pair.b.number(), pair.gid());
  connect(*pair.b, pair.a.number(), pair.gid());
  for (uint64_t i = 10; i < 30; ++i) {
    ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}, i), 0);
    ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}, i), 0);
    ASSERT_EQ(pair.b.received().wr_id, i);
    ASSERT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  }
}

TEST_F(Queues, DestructionTakesTheCompletionsAlong) {
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(64, 8)}), 0);
  pair.b.qp.reset();
  EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
}

// ---- completion queues ----

struct Overrun : Scene {
  Owned<Cq> small = make_cq(context.get(), 4, -1, 0xc9);
  Owned<Cq> receives = make_cq(context.get());
  Owned<Qp> qp = make_qp(pd.get(), small.get(), receives.get(), {}, 0x99);
  Region memory{pd.get(), 64};
  Overrun() {
    connect(qp.get(), qp_number(qp.get()), gid());
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
  }
};

TEST(CqOverrun, IsAnEventOfTheCq) {
  Overrun overrun;
  const AsyncEvent event = async_event(overrun.context.get());
  EXPECT_EQ(event.type, uint32_t{IBV_EVENT_CQ_ERR});
  EXPECT_EQ(event.element, 0xc9u);
}

TEST(CqOverrun, PutsItsQpsInError) {
  Overrun overrun;
  EXPECT_TRUE(eventually([&] { return qp_state(overrun.qp.get()) == IBV_QPS_ERR; }));
  async_event(overrun.context.get());
  const AsyncEvent event = async_event(overrun.context.get());
  EXPECT_EQ(event.type, uint32_t{IBV_EVENT_QP_FATAL});
  EXPECT_EQ(event.element, 0x99u);
}

TEST(CqOverrun, DoesNotHarmAnotherCq) {
  Overrun overrun;
  EXPECT_TRUE(eventually([&] { return qp_state(overrun.qp.get()) == IBV_QPS_ERR; }));
  ASSERT_EQ(receive(overrun.qp.get(), {}, 5), 0);
  EXPECT_EQ(completion(overrun.receives.get()).wr_id, 5u);
}

TEST(Cq, UsedByAQpIsNotDestroyed) {
  Pair pair;
  uint32_t completion_events, async_events;
  EXPECT_EQ(destroy_cq(pair.a.send_cq.get(), &completion_events, &async_events), EBUSY);
}

TEST(Cq, HasAsManyEntriesAsAskedAtLeast) {
  Scene scene;
  for (int entries : {1, 2, 3, 100, 4096})
    EXPECT_GE(cq_capacity(make_cq(scene.context.get(), entries).get()), entries);
}

}  // namespace
}  // namespace verbena
