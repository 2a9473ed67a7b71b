// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_cq(3), ibv_poll_cq(3), ibv_destroy_cq(3).
#include "fixture.h"

namespace verbena::test {
namespace {

TEST_F(CqTest, HoldsAtLeastWhatWasAsked) {
  Cq cq = make_cq(37);
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, 37);
}

TEST_F(CqTest, TheLargestOneIsGiven) {
  Cq cq = make_cq(device_.max_cqe);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  EXPECT_GE(cq->cqe, device_.max_cqe);
}

struct BadCq {
  int cqe;
  int comp_vector;
};
class BadCqTest : public CqTest, public testing::WithParamInterface<BadCq> {};

TEST_P(BadCqTest, IsInvalid) {
  EXPECT_EQ(ibv_create_cq(context_.get(), GetParam().cqe, nullptr, nullptr, GetParam().comp_vector), nullptr);
  EXPECT_EQ(errno, EINVAL);
}
INSTANTIATE_TEST_SUITE_P(Table, BadCqTest,
                         testing::Values(BadCq{0, 0}, BadCq{-1, 0}, BadCq{1, -1}, BadCq{1, 1 << 20}));

TEST_F(CqTest, MoreThanTheDeviceHasIsInvalid) {
  EXPECT_EQ(make_cq(device_.max_cqe + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(CqTest, KeepsItsContext) {
  EXPECT_EQ(cq_->cq_context, this);
  EXPECT_EQ(cq_->context, context_.get());
}

TEST_F(CqTest, IsEmptyAtFirst) {
  ibv_wc wc[4];
  EXPECT_EQ(ibv_poll_cq(cq_.get(), 4, wc), 0);
}

TEST_F(CqTest, IsBusyWhileAQpUsesIt) {
  Qp qp = make_qp();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq_.get()), EBUSY);
}

}  // namespace
}  // namespace verbena::test
