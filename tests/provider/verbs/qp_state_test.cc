// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_modify_qp(3): the transitions, what each of them requires, and that a refusal changes nothing. Allowed
// is what the kernel allows (drivers/infiniband/core/verbs.c, qp_state_table).
#include <functional>
#include <string>

#include "fixture.h"

namespace verbena::test {
namespace {

class StateTest : public QpTest {
 protected:
  void SetUp() override {
    QpTest::SetUp();
    if (HasFatalFailure()) return;
    qp_ = make_qp();
    ASSERT_NE(qp_, nullptr) << strerror(errno);
  }
  void bring_to(ibv_qp_state state) {
    if (state == IBV_QPS_RESET) return;
    ASSERT_EQ(to_init(qp_.get()), 0);
    if (state == IBV_QPS_INIT) return;
    ASSERT_EQ(to_rtr(qp_.get(), qp_->qp_num), 0);
    if (state == IBV_QPS_RTR) return;
    ASSERT_EQ(to_rts(qp_.get()), 0);
    if (state == IBV_QPS_RTS) return;
    ASSERT_EQ(to_state(qp_.get(), state), 0);
  }

  Qp qp_;
};

TEST_F(StateTest, TheWayToRts) {
  ASSERT_EQ(to_init(qp_.get()), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_INIT);
  ASSERT_EQ(to_rtr(qp_.get(), qp_->qp_num), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RTR);
  ASSERT_EQ(to_rts(qp_.get()), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RTS);
  EXPECT_EQ(qp_->state, IBV_QPS_RTS);
}

TEST_F(StateTest, ThroughSqdAndBack) {
  bring_to(IBV_QPS_RTS);
  ASSERT_EQ(to_state(qp_.get(), IBV_QPS_SQD), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_SQD);
  ASSERT_EQ(to_state(qp_.get(), IBV_QPS_RTS), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RTS);
}

TEST_F(StateTest, ConnectsAgainAfterReset) {
  bring_to(IBV_QPS_RTS);
  ASSERT_EQ(to_state(qp_.get(), IBV_QPS_RESET), 0);
  connect(qp_.get(), qp_->qp_num);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RTS);
}

class AnyStateTest : public StateTest, public testing::WithParamInterface<ibv_qp_state> {};

TEST_P(AnyStateTest, GoesToReset) {
  bring_to(GetParam());
  ASSERT_EQ(to_state(qp_.get(), IBV_QPS_RESET), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RESET);
}
TEST_P(AnyStateTest, Destroys) { bring_to(GetParam()); }

INSTANTIATE_TEST_SUITE_P(States, AnyStateTest,
                         testing::Values(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
                                         IBV_QPS_ERR));

class ErrorStateTest : public StateTest, public testing::WithParamInterface<ibv_qp_state> {};

TEST_P(ErrorStateTest, IsReached) {
  bring_to(GetParam());
  ASSERT_EQ(to_state(qp_.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_ERR);
}
INSTANTIATE_TEST_SUITE_P(States, ErrorStateTest,
                         testing::Values(IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR));

struct Jump {
  ibv_qp_state from;
  ibv_qp_state to;
};
class ForbiddenJumpTest : public StateTest, public testing::WithParamInterface<Jump> {};

TEST_P(ForbiddenJumpTest, IsInvalidAndChangesNothing) {
  bring_to(GetParam().from);
  EXPECT_EQ(to_state(qp_.get(), GetParam().to), EINVAL);
  EXPECT_EQ(state_of(qp_.get()), GetParam().from);
  EXPECT_EQ(qp_->state, GetParam().from);
}
INSTANTIATE_TEST_SUITE_P(Table, ForbiddenJumpTest,
                         testing::Values(Jump{IBV_QPS_RESET, IBV_QPS_ERR}, Jump{IBV_QPS_RESET, IBV_QPS_RTR},
                                         Jump{IBV_QPS_RESET, IBV_QPS_RTS}, Jump{IBV_QPS_INIT, IBV_QPS_RTS},
                                         Jump{IBV_QPS_INIT, IBV_QPS_SQD}, Jump{IBV_QPS_RTR, IBV_QPS_INIT},
                                         Jump{IBV_QPS_RTR, IBV_QPS_SQD}, Jump{IBV_QPS_RTS, IBV_QPS_INIT},
                                         Jump{IBV_QPS_RTS, IBV_QPS_RTR}, Jump{IBV_QPS_RTS, IBV_QPS_SQE},
                                         Jump{IBV_QPS_ERR, IBV_QPS_INIT}, Jump{IBV_QPS_ERR, IBV_QPS_RTS}));

// ---- each required attribute is needed, and each one that does not belong is refused ----

struct Attribute {
  ibv_qp_state to;
  int bit;
};
class RequiredAttributeTest : public StateTest, public testing::WithParamInterface<Attribute> {};

TEST_P(RequiredAttributeTest, IsMissed) {
  ibv_qp_attr attr = {};
  int mask = 0;
  if (GetParam().to == IBV_QPS_INIT) {
    attr = init_attr();
    mask = kInitMask;
  } else if (GetParam().to == IBV_QPS_RTR) {
    bring_to(IBV_QPS_INIT);
    attr = rtr_attr(qp_->qp_num);
    mask = kRtrMask;
  } else {
    bring_to(IBV_QPS_RTR);
    attr = rts_attr();
    mask = kRtsMask;
  }
  const ibv_qp_state before = qp_->state;
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, mask & ~GetParam().bit), EINVAL);
  EXPECT_EQ(state_of(qp_.get()), before);
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, mask), 0) << "and nothing was changed";
}
INSTANTIATE_TEST_SUITE_P(
    Table, RequiredAttributeTest,
    testing::Values(Attribute{IBV_QPS_INIT, IBV_QP_PKEY_INDEX}, Attribute{IBV_QPS_INIT, IBV_QP_PORT},
                    Attribute{IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS}, Attribute{IBV_QPS_RTR, IBV_QP_AV},
                    Attribute{IBV_QPS_RTR, IBV_QP_PATH_MTU}, Attribute{IBV_QPS_RTR, IBV_QP_DEST_QPN},
                    Attribute{IBV_QPS_RTR, IBV_QP_RQ_PSN}, Attribute{IBV_QPS_RTR, IBV_QP_MAX_DEST_RD_ATOMIC},
                    Attribute{IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER}, Attribute{IBV_QPS_RTS, IBV_QP_TIMEOUT},
                    Attribute{IBV_QPS_RTS, IBV_QP_RETRY_CNT}, Attribute{IBV_QPS_RTS, IBV_QP_RNR_RETRY},
                    Attribute{IBV_QPS_RTS, IBV_QP_SQ_PSN}, Attribute{IBV_QPS_RTS, IBV_QP_MAX_QP_RD_ATOMIC}));

TEST_F(StateTest, AnAttributeOfAnotherTransitionIsInvalid) {
  ibv_qp_attr attr = init_attr();
  attr.qkey = 1;
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, kInitMask | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RESET);
}

TEST_F(StateTest, AWrongCurrentStateIsInvalid) {
  bring_to(IBV_QPS_RTR);
  ibv_qp_attr attr = rts_attr();
  attr.cur_qp_state = IBV_QPS_SQD;
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, kRtsMask | IBV_QP_CUR_STATE), EINVAL);
}

// ---- values ----

struct BadValue {
  const char* name;
  std::function<void(ibv_qp_attr*)> change;
};
class BadInitValueTest : public StateTest, public testing::WithParamInterface<BadValue> {};
class BadRtrValueTest : public StateTest, public testing::WithParamInterface<BadValue> {};

TEST_P(BadInitValueTest, IsInvalid) {
  ibv_qp_attr attr = init_attr();
  GetParam().change(&attr);
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, kInitMask), EINVAL);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_RESET);
}
INSTANTIATE_TEST_SUITE_P(Table, BadInitValueTest,
                         testing::Values(BadValue{"Port0", [](auto* a) { a->port_num = 0; }},
                                         BadValue{"Port2", [](auto* a) { a->port_num = 2; }},
                                         BadValue{"PkeyIndex", [](auto* a) { a->pkey_index = 999; }}),
                         [](const auto& value) { return std::string(value.param.name); });

TEST_P(BadRtrValueTest, IsInvalid) {
  bring_to(IBV_QPS_INIT);
  ibv_qp_attr attr = rtr_attr(qp_->qp_num);
  GetParam().change(&attr);
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, kRtrMask), EINVAL);
  EXPECT_EQ(state_of(qp_.get()), IBV_QPS_INIT);
}
INSTANTIATE_TEST_SUITE_P(
    Table, BadRtrValueTest,
    testing::Values(BadValue{"Mtu0", [](auto* a) { a->path_mtu = static_cast<ibv_mtu>(0); }},
                    BadValue{"Mtu6", [](auto* a) { a->path_mtu = static_cast<ibv_mtu>(6); }},
                    BadValue{"GidIndex", [](auto* a) { a->ah_attr.grh.sgid_index = 200; }},
                    BadValue{"PathPort", [](auto* a) { a->ah_attr.port_num = 2; }},
                    BadValue{"ReadDepth", [](auto* a) { a->max_dest_rd_atomic = 255; }}),
    [](const auto& value) { return std::string(value.param.name); });

TEST_F(StateTest, APathWithoutGrhIsForInfinibandOnly) {
  bring_to(IBV_QPS_INIT);
  ibv_qp_attr attr = rtr_attr(qp_->qp_num);
  attr.ah_attr.is_global = 0;
  EXPECT_EQ(ibv_modify_qp(qp_.get(), &attr, kRtrMask), port_.link_layer == IBV_LINK_LAYER_ETHERNET ? EINVAL : 0);
}

}  // namespace
}  // namespace verbena::test
