// SPDX-License-Identifier: BSD-2-Clause
#include "cm/connection_qp.h"

#include <errno.h>
#include <gtest/gtest.h>

namespace verbena::cm {
namespace {

QpFacts facts(Exchange exchange, ibv_qp_type type = IBV_QPT_RC) {
  QpFacts f{};
  f.exchange = exchange;
  f.type = type;
  f.port = 1;
  f.qkey = 0x01234567;
  f.remote_qpn = 99;
  f.receive_psn = 1000;
  f.send_psn = 2000;
  f.path_mtu = IBV_MTU_2048;
  f.responder_resources = 4;
  f.initiator_depth = 3;
  f.retry_count = 6;
  f.rnr_retry_count = 5;
  f.ack_timeout = 17;
  return f;
}

// The mask that the attributes of this state have; -1: refused.
int mask_for(const QpFacts& f, ibv_qp_state to, ibv_qp_attr* attr) {
  *attr = {};
  attr->qp_state = to;
  int mask = 0;
  const int error = connection_qp_attributes(f, attr, &mask);
  EXPECT_TRUE(error == 0 || (error == EINVAL && mask == 0));
  return error == 0 ? mask : -1;
}

class ConnectionQp : public ::testing::Test {
 protected:
  ibv_qp_attr attr_{};
};

TEST_F(ConnectionQp, BeforeTheConnectionThereIsNoAccess) {
  EXPECT_EQ(mask_for(facts(Exchange::kNone), IBV_QPS_INIT, &attr_),
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(attr_.qp_access_flags, 0u);
  EXPECT_EQ(attr_.port_num, 1);
}

TEST_F(ConnectionQp, ADatagramIdNeedsItsQkey) {
  EXPECT_EQ(mask_for(facts(Exchange::kNone, IBV_QPT_UD), IBV_QPS_INIT, &attr_),
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  EXPECT_EQ(attr_.qkey, 0x01234567u);
}

TEST_F(ConnectionQp, AConnectionsInitAllowsWhatTheResponderHasResourcesFor) {
  EXPECT_EQ(mask_for(facts(Exchange::kOpen), IBV_QPS_INIT, &attr_),
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(attr_.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                         IBV_ACCESS_REMOTE_ATOMIC));
}

TEST_F(ConnectionQp, WithoutResponderResourcesOnlyWritesAreAllowed) {
  QpFacts f = facts(Exchange::kOpen);
  f.responder_resources = 0;
  mask_for(f, IBV_QPS_INIT, &attr_);
  EXPECT_EQ(attr_.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE));
}

TEST_F(ConnectionQp, AfterTheRequestOnlyInitIsKnown) {
  EXPECT_NE(mask_for(facts(Exchange::kRequestSent), IBV_QPS_INIT, &attr_), -1);
  EXPECT_EQ(mask_for(facts(Exchange::kRequestSent), IBV_QPS_RTR, &attr_), -1);
  EXPECT_EQ(mask_for(facts(Exchange::kRequestSent), IBV_QPS_RTS, &attr_), -1);
}

TEST_F(ConnectionQp, RtrLeadsToThePeer) {
  EXPECT_EQ(mask_for(facts(Exchange::kOpen), IBV_QPS_RTR, &attr_),
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(attr_.dest_qp_num, 99u);
  EXPECT_EQ(attr_.rq_psn, 1000u);
  EXPECT_EQ(attr_.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(attr_.max_dest_rd_atomic, 4);
  EXPECT_EQ(attr_.min_rnr_timer, 0);
}

TEST_F(ConnectionQp, RtsSaysHowOftenToTry) {
  EXPECT_EQ(mask_for(facts(Exchange::kOpen), IBV_QPS_RTS, &attr_),
            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(attr_.sq_psn, 2000u);
  EXPECT_EQ(attr_.retry_cnt, 6);
  EXPECT_EQ(attr_.rnr_retry, 5);
  EXPECT_EQ(attr_.max_rd_atomic, 3);
  EXPECT_EQ(attr_.timeout, 17);
}

TEST_F(ConnectionQp, AnAckTimeoutThatWasSetCounts) {
  QpFacts f = facts(Exchange::kOpen);
  f.ack_timeout_is_set = true;
  f.set_ack_timeout = 0;  // never
  mask_for(f, IBV_QPS_RTS, &attr_);
  EXPECT_EQ(attr_.timeout, 0);
}

struct TypeCase {
  ibv_qp_type type;
  int more_in_rtr, more_in_rts;
};
constexpr int kAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kAsks = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

class ConnectionQpTypes : public ::testing::TestWithParam<TypeCase> {};

TEST_P(ConnectionQpTypes, GetWhatTheyNeed) {
  const auto [type, more_in_rtr, more_in_rts] = GetParam();
  ibv_qp_attr attr;
  EXPECT_EQ(mask_for(facts(Exchange::kOpen, type), IBV_QPS_RTR, &attr),
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | more_in_rtr);
  EXPECT_EQ(mask_for(facts(Exchange::kOpen, type), IBV_QPS_RTS, &attr),
            IBV_QP_STATE | IBV_QP_SQ_PSN | more_in_rts);
}

INSTANTIATE_TEST_SUITE_P(All, ConnectionQpTypes,
                         ::testing::Values(TypeCase{IBV_QPT_RC, kAnswers, kAsks | IBV_QP_TIMEOUT},
                                           TypeCase{IBV_QPT_UC, 0, 0},
                                           TypeCase{IBV_QPT_XRC_SEND, 0, kAsks | IBV_QP_TIMEOUT},
                                           TypeCase{IBV_QPT_XRC_RECV, kAnswers, IBV_QP_TIMEOUT}));

TEST_F(ConnectionQp, AfterTheEndNothingIsKnown) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    EXPECT_EQ(mask_for(facts(Exchange::kOver), state, &attr_), -1);
}

TEST_F(ConnectionQp, OtherStatesAreNotTheManagersBusiness) {
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_ERR})
    EXPECT_EQ(mask_for(facts(Exchange::kOpen), state, &attr_), -1);
}

}  // namespace
}  // namespace verbena::cm
