// SPDX-License-Identifier: BSD-2-Clause
//
// Completion events: when they are raised, how they are counted, which channel gets them.
#include <gtest/gtest.h>

#include <array>

#include "unit/common/own_process.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr uint64_t kHandle = 0xc0;

class Events : public ::testing::Test {
 protected:
  Events() {
    EXPECT_EQ(create_comp_channel(scene.context.get(), &channel), 0);
    cq = make_cq(scene.context.get(), 4096, channel, kHandle);
    other = make_cq(scene.context.get(), 4096);
    from = make_qp(scene.pd.get(), other.get(), other.get(), {}, 1);
    to = make_qp(scene.pd.get(), other.get(), cq.get(), {}, 2);
    connect(from.get(), qp_number(to.get()), scene.gid());
    connect(to.get(), qp_number(from.get()), scene.gid());
  }
  ~Events() override {
    if (channel >= 0) close(channel);
  }
  void message(unsigned flags = 0) {
    EXPECT_EQ(receive(to.get(), {memory.sge(8, 8)}), 0);
    EXPECT_EQ(send(from.get(), {memory.sge(0, 8)}, 0, flags | IBV_SEND_SIGNALED), 0);
    completion(other.get());
  }
  // As ibv_get_cq_event(3) does it: reads, then tells the CQ.
  bool event(int timeout_ms = 20000) const {
    if (completion_event(channel, timeout_ms) != kHandle) return false;
    cq_event(cq.get());
    return true;
  }
  bool no_event() const { return completion_event(channel, 0) == UINT64_MAX; }

  Scene scene;
  int channel = -1;
  Region memory{scene.pd.get(), 64};
  Owned<Cq> cq, other;
  Owned<Qp> from, to;
};

TEST_F(Events, AreNotRaisedUnlessArmed) {
  message();
  EXPECT_TRUE(no_event());
}

TEST_F(Events, AreRaisedOnceForEachArming) {
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  message();
  message();
  EXPECT_TRUE(event());
  EXPECT_TRUE(no_event());
}

TEST_F(Events, AreRaisedForWhatCameWhileTheCqWasNotArmed) {
  message();
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  EXPECT_TRUE(event());
  completion(cq.get());
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  message();
  EXPECT_TRUE(event());
  message();
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  EXPECT_TRUE(event());
}

TEST_F(Events, AreNotRaisedForWhatTheLastEventToldOf) {
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  message();
  EXPECT_TRUE(event());
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  EXPECT_TRUE(no_event());
}

TEST_F(Events, ArmedForSolicitedAreNotRaisedForWhatWasThereBefore) {
  message(IBV_SEND_SOLICITED);
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  EXPECT_TRUE(no_event());
}

TEST_F(Events, ArmedForSolicitedAreNotRaisedByOthers) {
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  message();
  EXPECT_TRUE(no_event());
  message(IBV_SEND_SOLICITED);
  EXPECT_TRUE(event());
}

TEST_F(Events, ArmedForAllStayThatWhenAskedForSolicited) {
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  message();
  EXPECT_TRUE(event());
}

TEST_F(Events, ArmedForSolicitedBecomeAllWhenAskedFor) {
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  ASSERT_EQ(req_notify_cq(cq.get(), false), 0);
  message();
  EXPECT_TRUE(event());
}

TEST_F(Events, AreRaisedByErrorsWhenArmedForSolicited) {
  ASSERT_EQ(receive(to.get(), {memory.sge(8, 8)}), 0);
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  ASSERT_EQ(to_state(to.get(), IBV_QPS_ERR), 0);
  EXPECT_TRUE(event());
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Events, AreRaisedByAMessageThatDoesNotFitWhenArmedForSolicited) {
  ASSERT_EQ(receive(to.get(), {memory.sge(8, 4)}), 0);
  ASSERT_EQ(req_notify_cq(cq.get(), true), 0);
  ASSERT_EQ(send(from.get(), {memory.sge(0, 8)}), 0);
  EXPECT_TRUE(event());
  EXPECT_EQ(completion(cq.get()).status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(completion(other.get()).status, IBV_WC_REM_INV_REQ_ERR);
}

// The events of a SEND go to one channel here, so that their order is seen.
class EventOrder : public Events {
 protected:
  static constexpr uint64_t kOwn = 0xc1;

  // `receives`: the receive CQ of the sender.
  void expect_order(Cq* receives, const std::array<uint64_t, 2>& handles) {
    const Owned<Qp> sender = make_qp(scene.pd.get(), own.get(), receives);
    const Owned<Qp> receiver = make_qp(scene.pd.get(), other.get(), cq.get());
    connect(sender.get(), qp_number(receiver.get()), scene.gid());
    connect(receiver.get(), qp_number(sender.get()), scene.gid());
    Region large(scene.pd.get(), 2 * 4096);
    for (const uint32_t length : {8u, 4096u}) {  // by the fast path, and by the requester
      ASSERT_EQ(receive(receiver.get(), {large.sge(4096, 4096)}), 0);
      for (Cq* armed : {cq.get(), own.get()}) ASSERT_EQ(req_notify_cq(armed, false), 0);
      ASSERT_EQ(send(sender.get(), {large.sge(0, length)}, 0, IBV_SEND_SIGNALED), 0);
      for (const uint64_t handle : handles) EXPECT_EQ(completion_event(channel, 20000), handle) << length;
      for (Cq* notified : {cq.get(), own.get()}) cq_event(notified);
      completion(cq.get());
      completion(own.get());
    }
  }

  const Owned<Cq> own = make_cq(scene.context.get(), 64, channel, kOwn);
};

// Raising our own wakes a thread of ours, and may be the last thing that this process does.
TEST_F(EventOrder, IsThePeersBeforeOurOwn) { expect_order(other.get(), {kHandle, kOwn}); }

// Our reader of the channel expects the request's event before that of the peer's reply.
TEST_F(EventOrder, IsOurOwnFirstWhereTheReplyGoesToTheSameChannel) {
  const Owned<Cq> replies = make_cq(scene.context.get(), 64, channel, 0xc2);
  expect_order(replies.get(), {kOwn, kHandle});
}

// One CQ has its completions in their order, whatever the events'.
TEST_F(EventOrder, IsThePeersBeforeOurOwnWithOneCq) { expect_order(own.get(), {kHandle, kOwn}); }

TEST_F(Events, ThatWereReadAreCountedAtDestruction) {
  for (int i = 0; i < 5; ++i) {
    req_notify_cq(cq.get(), false);
    message();
    if (i < 3) {
      ASSERT_TRUE(event());
    }
  }
  to.reset();
  uint32_t completion_events = 99, async_events = 99;
  ASSERT_EQ(destroy_cq(cq.release(), &completion_events, &async_events), 0);
  EXPECT_EQ(completion_events, 3u);
  EXPECT_EQ(async_events, 0u);
  EXPECT_TRUE(no_event());
}

TEST_F(Events, OfOtherCqsStayWhenOneIsDestroyed) {
  Owned<Cq> second = make_cq(scene.context.get(), 16, channel, 0xd0);
  Owned<Qp> qp = make_qp(scene.pd.get(), second.get(), other.get());
  req_notify_cq(cq.get(), false);
  req_notify_cq(second.get(), false);
  message();
  ASSERT_EQ(to_init(qp.get()), 0);
  connect(qp.get(), qp_number(qp.get()), scene.gid());
  ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
  to.reset();
  uint32_t completion_events, async_events;
  ASSERT_EQ(destroy_cq(cq.release(), &completion_events, &async_events), 0);
  EXPECT_EQ(completion_events, 0u);
  EXPECT_EQ(completion_event(channel), 0xd0u);
  EXPECT_TRUE(no_event());
}

TEST_F(Events, ThatDoNotFitIntoThePipeComeLater) {
  constexpr int kMany = 9000;  // a pipe holds 8,192
  int seen = 0;
  for (int i = 0; i < kMany; ++i) {
    req_notify_cq(cq.get(), false);
    message();
    completion(cq.get());
  }
  while (completion_event(channel, seen == kMany ? 0 : 20000) == kHandle) {
    ++seen;
    cq_event(cq.get());
  }
  EXPECT_EQ(seen, kMany);
}

TEST_F(Events, ChannelsThatWereClosedCostNothing) {
  size_t before = 0;
  for (int i = 0; i < 60; ++i) {
    if (i == 10) before = open_descriptors();
    int fd = -1;
    ASSERT_EQ(create_comp_channel(scene.context.get(), &fd), 0);
    Owned<Cq> own = make_cq(scene.context.get(), 16, fd, 0xe0);
    Owned<Qp> qp = make_qp(scene.pd.get(), own.get(), other.get());
    connect(qp.get(), qp_number(qp.get()), scene.gid());
    req_notify_cq(own.get(), false);
    ASSERT_EQ(rdma(qp.get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
    ASSERT_EQ(completion_event(fd), 0xe0u);
    qp.reset();
    own.reset();
    close(fd);
  }
  EXPECT_LT(open_descriptors(), before + 10);
}

// ---- asynchronous events ----

TEST(AsyncEvents, TheFirstMessageInRtrIsCommEst) {
  Scene scene;
  Owned<Cq> cq = make_cq(scene.context.get());
  Region memory(scene.pd.get(), 64);
  Owned<Qp> from = make_qp(scene.pd.get(), cq.get(), cq.get(), {}, 1);
  Owned<Qp> to = make_qp(scene.pd.get(), cq.get(), cq.get(), {}, 2);
  ASSERT_EQ(to_init(to.get()), 0);
  ASSERT_EQ(to_rtr(to.get(), qp_number(from.get()), scene.gid()), 0);
  connect(from.get(), qp_number(to.get()), scene.gid());
  ASSERT_EQ(rdma(from.get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()), 0);
  const AsyncEvent event = async_event(scene.context.get());
  EXPECT_EQ(event.type, uint32_t{IBV_EVENT_COMM_EST});
  EXPECT_EQ(event.element, 2u);
}

TEST(AsyncEvents, ABadKeyIsAnAccessErrorOfTheResponder) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey() + 0x200),
            0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  const AsyncEvent event = async_event(pair.context.get());
  EXPECT_EQ(event.type, uint32_t{IBV_EVENT_QP_ACCESS_ERR});
  EXPECT_EQ(event.element, 0xbu);
  EXPECT_EQ(qp_state(*pair.b), IBV_QPS_ERR);
}

// The error tables of vol. 1, 9.9.3: a request that has a receive WQE is reported by its completion.
TEST(AsyncEvents, ABadKeyOfAWriteWithImmediateIsACompletionInstead) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {}, 5), 0);
  ASSERT_EQ(
      rdma(*pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, {memory.sge(0, 8)}, memory.address(8), memory.rkey() + 0x200),
      0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  const ibv_wc received = pair.b.received();
  EXPECT_EQ(received.status, IBV_WC_LOC_ACCESS_ERR);
  EXPECT_EQ(received.wr_id, 5u);
  EXPECT_TRUE(eventually([&] { return qp_state(*pair.b) == IBV_QPS_ERR; }));
  EXPECT_EQ(async_event(pair.context.get(), 20).type, UINT32_MAX);
}

TEST(AsyncEvents, ThatWereReadAreCountedAtDestruction) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey() + 0x200),
            0);
  async_event(pair.context.get());
  uint32_t events = 99;
  ASSERT_EQ(destroy_qp(pair.b.qp.release(), &events), 0);
  EXPECT_EQ(events, 1u);
}

TEST(AsyncEvents, ThatWereNotReadAreTakenBackAtDestruction) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey() + 0x200),
            0);
  pollfd readable{context_async_fd(pair.context.get()), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 20000), 1);
  uint32_t events = 99;
  ASSERT_EQ(destroy_qp(pair.b.qp.release(), &events), 0);
  EXPECT_EQ(events, 0u);
  EXPECT_EQ(async_event(pair.context.get(), 0).type, UINT32_MAX);
}

}  // namespace
}  // namespace verbena
