// SPDX-License-Identifier: BSD-2-Clause
#include "fixture.h"

namespace verbena::test {
namespace {

class FlowTest : public ObjectTest {
 protected:
  void SetUp() override {
    ObjectTest::SetUp();
    make_qp();
  }
  ibv_flow_attr attr_ = {};
};

TEST_F(FlowTest, ReachesTheEmulator) {
  ibv_flow* const flow = ibv_create_flow(qp_, &attr_);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(fake.flow, &attr_);
  EXPECT_EQ(flow->context, context_);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(FlowTest, ARefusalSetsErrno) {
  fake.error = ENOMEM;
  EXPECT_EQ(ibv_create_flow(qp_, &attr_), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  fake.error = 0;
}

TEST_F(FlowTest, CountersReachTheEmulator) {
  ibv_counters_init_attr init = {};
  ibv_counters* const counters = ibv_create_counters(context_, &init);
  ASSERT_NE(counters, nullptr);
  EXPECT_EQ(counters->context, context_);
  ibv_counter_attach_attr point = {};
  point.index = 3;
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &point, nullptr), 0);
  EXPECT_EQ(fake.counter_index, 3u);
  uint64_t values[2] = {};
  EXPECT_EQ(ibv_read_counters(counters, values, 2, 0), 0);
  EXPECT_EQ(values[1], 2u);
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

TEST_F(FlowTest, ARefusalOfCountersSetsErrno) {
  ibv_counters_init_attr init = {};
  ibv_counters* const counters = ibv_create_counters(context_, &init);
  fake.error = EBUSY;
  errno = 0;
  EXPECT_EQ(ibv_destroy_counters(counters), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_create_counters(context_, &init), nullptr);
  fake.error = 0;
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

}  // namespace
}  // namespace verbena::test
