// SPDX-License-Identifier: BSD-2-Clause
//
// The states between working and broken: SQD, and what SQE does not allow.
#include <errno.h>
#include <gtest/gtest.h>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

struct Draining : ::testing::Test {
  Pair pair;
  Region memory{pair.pd.get(), 4096};

  int drain(bool with_event) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = with_event;
    return modify_qp(*pair.a, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
  }
  int write(uint64_t wr_id) {
    return rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey(), wr_id);
  }
  ibv_qp_attr query() {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(query_qp(*pair.a, &attr, &init), 0);
    return attr;
  }
};

TEST_F(Draining, OfAnEmptyQueueIsAnEventAtOnce) {
  ASSERT_EQ(drain(true), 0);
  const AsyncEvent event = async_event(pair.context.get());
  EXPECT_EQ(event.type, uint32_t{IBV_EVENT_SQ_DRAINED});
  EXPECT_EQ(event.element, 0xau);
}

TEST_F(Draining, RaisesNoEventUnlessAskedTo) {
  ASSERT_EQ(drain(false), 0);
  EXPECT_EQ(async_event(pair.context.get(), 50).type, UINT32_MAX);
}

TEST_F(Draining, RefusesNothingAndBeginsNothing) {
  ASSERT_EQ(drain(false), 0);
  ASSERT_EQ(write(1), 0);
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
  usleep(30'000);  // time for the service thread to act
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
}

TEST_F(Draining, EndsWithWhatWasPostedMeanwhile) {
  ASSERT_EQ(drain(false), 0);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(write(i), 0);
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_RTS), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 4);
  for (uint64_t i = 0; i < wcs.size(); ++i) EXPECT_EQ(wcs[i].wr_id, i);
}

TEST_F(Draining, FinishesTheRequestThatHasBegun) {
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 1), 0);  // waits for a receive
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 2), 0);  // has not begun
  ASSERT_EQ(drain(true), 0);
  EXPECT_EQ(query().sq_draining, 1);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(receive(*pair.b, {memory.sge(8, 8)}), 0);
  EXPECT_EQ(pair.a.sent().wr_id, 1u);
  EXPECT_EQ(async_event(pair.context.get()).type, uint32_t{IBV_EVENT_SQ_DRAINED});
  EXPECT_EQ(query().sq_draining, 0);
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_RTS), 0);
  EXPECT_EQ(pair.a.sent().wr_id, 2u);
}

TEST_F(Draining, IsNotLeftForRtsWhileRequestsAreUnderWay) {
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 1), 0);
  ASSERT_EQ(drain(true), 0);
  EXPECT_EQ(to_state(*pair.a, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_SQD);
}

TEST_F(Draining, DoesNotKeepThePeerFromSending) {
  ASSERT_EQ(drain(false), 0);
  ASSERT_EQ(receive(*pair.a, {memory.sge(8, 8)}, 3), 0);
  ASSERT_EQ(send(*pair.b, {memory.sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.received().wr_id, 3u);
  EXPECT_EQ(pair.b.sent().status, IBV_WC_SUCCESS);
}

TEST_F(Draining, GoesToErrorWithEverythingFlushed) {
  ASSERT_EQ(drain(false), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(write(i), 0);
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 3);
  for (const ibv_wc& wc : wcs) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Draining, FailsAtItsTimeWhenTheReceiveNeverComes) {
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_RESET), 0);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0);
  const QpSetup setup{.rnr_retry = 2, .min_rnr_timer = 20};
  connect(*pair.a, pair.b.number(), pair.gid(), setup);
  connect(*pair.b, pair.a.number(), pair.gid(), setup);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 1), 0);
  ASSERT_EQ(drain(true), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_ERR);
}

// vol. 1, 10.3.1: SQE belongs to UC and UD, whose send queue may fail alone. RC goes to ERR.
TEST_F(Draining, NoRcQueuePairIsPutIntoSqe) {
  EXPECT_EQ(to_state(*pair.a, IBV_QPS_SQE), EINVAL);
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_RTS);
}

TEST_F(Draining, AFailureOfARequestLeadsToErrNotToSqe) {
  ASSERT_EQ(
      rdma(*pair.a, IBV_WR_RDMA_WRITE, {{memory.address(), 8, 0x12345}}, memory.address(8), memory.rkey()),
      0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_ERR);
}

}  // namespace
}  // namespace verbena
