// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/qp_state_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <iterator>
#include <ostream>
#include <vector>

namespace verbena {
namespace {

constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC,         IBV_QPT_UC,       IBV_QPT_UD,
                                  IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// The bits that ibv_modify_qp(3) lists.
std::vector<int> all_attribute_bits() {
  std::vector<int> bits;
  for (int bit = IBV_QP_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1) bits.push_back(bit);
  bits.push_back(IBV_QP_RATE_LIMIT);
  return bits;
}

// Row: from; column: to; in the order of kStates. Kernel verbs.c, qp_state_table[][].valid.
constexpr const char* kLegal[] = {
    "xx-----",  // RESET
    "xxx---x",  // INIT
    "x--x--x",  // RTR
    "x--xx-x",  // RTS
    "x--xx-x",  // SQD
    "x--x--x",  // SQE
    "x-----x",  // ERR
};

struct TransitionCase {
  ibv_qp_type type;
  ibv_qp_state cur, next;
};

void PrintTo(const TransitionCase& c, std::ostream* out) {
  *out << name_of_qp_type(c.type) << " " << name_of_state(c.cur) << " to " << name_of_state(c.next);
}

std::vector<TransitionCase> transitions(char legality) {
  std::vector<TransitionCase> cases;
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state cur : kStates)
      for (const ibv_qp_state next : kStates)
        if (kLegal[cur][next] == legality) cases.push_back({type, cur, next});
  return cases;
}

// One property for every legal transition of every type: a failure names the transition.
struct LegalTransition : testing::Test {
  TransitionCase c{};
  Transition row{};
  int offending = -1;

  int check(int mask) { return check_transition(c.type, c.cur, c.next, mask, &offending); }

  template <typename Property>
  void for_each(Property property) {
    for (const TransitionCase& each : transitions('x')) {
      c = each;
      row = find_transition(c.type, c.cur, c.next);
      SCOPED_TRACE(testing::PrintToString(c));
      property();
    }
  }
};

TEST_F(LegalTransition, IsLegal) {
  for_each([&] { EXPECT_TRUE(row.legal); });
}

TEST_F(LegalTransition, RequiredAttributesSuffice) {
  for_each([&] {
    EXPECT_EQ(check(IBV_QP_STATE | row.required), 0);
    EXPECT_EQ(offending, 0);
  });
}

TEST_F(LegalTransition, EachOptionalAttributeMayCome) {
  for_each([&] {
    for (const int bit : all_attribute_bits()) {
      if (!(row.optional & bit)) continue;
      EXPECT_EQ(check(IBV_QP_STATE | row.required | bit), 0) << name_of_attribute_bit(bit);
    }
  });
}

TEST_F(LegalTransition, AllOptionalAttributesMayCome) {
  for_each([&] { EXPECT_EQ(check(IBV_QP_STATE | row.required | row.optional), 0); });
}

TEST_F(LegalTransition, EachRequiredAttributeIsMissed) {
  for_each([&] {
    for (const int bit : all_attribute_bits()) {
      if (!(row.required & bit)) continue;
      EXPECT_EQ(check((IBV_QP_STATE | row.required | row.optional) & ~bit), EINVAL)
          << name_of_attribute_bit(bit);
      EXPECT_EQ(offending, bit) << name_of_attribute_bit(bit);
    }
  });
}

TEST_F(LegalTransition, EachOtherAttributeIsRefused) {
  for_each([&] {
    const int belongs = IBV_QP_STATE | row.required | row.optional | ignored_attribute_bits(c.type);
    for (const int bit : all_attribute_bits()) {
      if (belongs & bit) continue;
      EXPECT_EQ(check(IBV_QP_STATE | row.required | bit), EINVAL) << name_of_attribute_bit(bit);
      EXPECT_EQ(offending, bit) << name_of_attribute_bit(bit);
    }
  });
}

TEST_F(LegalTransition, EachMissingAttributeIsToldBeforeAnExtraOne) {
  for_each([&] {
    for (const int bit : all_attribute_bits()) {
      if (!(row.required & bit)) continue;
      EXPECT_EQ(check(((IBV_QP_STATE | row.required) & ~bit) | IBV_QP_CAP), EINVAL)
          << name_of_attribute_bit(bit);
      EXPECT_EQ(offending, bit) << name_of_attribute_bit(bit);
    }
  });
}

TEST_F(LegalTransition, IgnoredAttributesChangeNothing) {
  for_each([&] { EXPECT_EQ(check(IBV_QP_STATE | row.required | ignored_attribute_bits(c.type)), 0); });
}

TEST_F(LegalTransition, NothingIsRequiredAndOptional) {
  for_each([&] { EXPECT_EQ(row.required & row.optional, 0); });
}

TEST_F(LegalTransition, NothingIsRequiredAndIgnored) {
  for_each([&] { EXPECT_EQ(row.required & ignored_attribute_bits(c.type), 0); });
}

TEST_F(LegalTransition, StateMayBeLeftOutOnlyWhereItStays) {
  for_each([&] {
    EXPECT_EQ(check(row.required), c.cur == c.next ? 0 : EINVAL);
    EXPECT_EQ(offending, c.cur == c.next ? 0 : IBV_QP_STATE);
  });
}

TEST(IllegalTransition, IsRefusedWithoutBlamingAnAttribute) {
  for (const TransitionCase& c : transitions('-')) {
    int offending = -1;
    EXPECT_EQ(check_transition(c.type, c.cur, c.next, IBV_QP_STATE, &offending), EINVAL)
        << testing::PrintToString(c);
    EXPECT_EQ(offending, 0) << testing::PrintToString(c);
  }
}

struct ExpectedResult {
  ibv_qp_type type;
  ibv_qp_state cur, next;
  int bits;
};

// ibv_modify_qp(3), the tables of required attributes.
TEST(QpStateTable, RequiresWhatTheManualPageSays) {
  const ExpectedResult manual[] = {
      {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
      {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0},
      {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN},
      {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
      {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN},
      {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN},
      {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
      {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT},
      {IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT},
      {IBV_QPT_RAW_PACKET, IBV_QPS_INIT, IBV_QPS_RTR, 0},
      {IBV_QPT_RAW_PACKET, IBV_QPS_RTR, IBV_QPS_RTS, 0},
  };
  for (const ExpectedResult& row : manual)
    EXPECT_EQ(find_transition(row.type, row.cur, row.next).required, row.bits)
        << testing::PrintToString(TransitionCase{row.type, row.cur, row.next});
}

// Kernel verbs.c, qp_state_table[][].req_param[IB_QPT_XRC_INI] and [IB_QPT_XRC_TGT].
TEST(QpStateTable, RequiresOfXrcWhatTheKernelSays) {
  const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const ExpectedResult kernel[] = {
      {IBV_QPT_XRC_SEND, IBV_QPS_RESET, IBV_QPS_INIT, init},
      {IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR, rtr},
      {IBV_QPT_XRC_SEND, IBV_QPS_RTR, IBV_QPS_RTS,
       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC},
      {IBV_QPT_XRC_RECV, IBV_QPS_RESET, IBV_QPS_INIT, init},
      {IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_RTR, rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN},
  };
  for (const ExpectedResult& row : kernel)
    EXPECT_EQ(find_transition(row.type, row.cur, row.next).required, row.bits)
        << testing::PrintToString(TransitionCase{row.type, row.cur, row.next});
}

TEST(QpStateTable, RequiresNothingOffTheWayUp) {
  for (const TransitionCase& c : transitions('x')) {
    const bool up = (c.cur == IBV_QPS_RESET && c.next == IBV_QPS_INIT) ||
                    (c.cur == IBV_QPS_INIT && c.next == IBV_QPS_RTR) ||
                    (c.cur == IBV_QPS_RTR && c.next == IBV_QPS_RTS);
    if (up) continue;
    EXPECT_EQ(find_transition(c.type, c.cur, c.next).required, 0) << testing::PrintToString(c);
  }
}

// Kernel verbs.c, qp_state_table[][].opt_param[]: one row per transition that has any. For the rate see
// qp_state_table.cc.
TEST(QpStateTable, AllowsWhatTheKernelSays) {
  const int cur = IBV_QP_CUR_STATE, alt = IBV_QP_ALT_PATH, access = IBV_QP_ACCESS_FLAGS,
            mig = IBV_QP_PATH_MIG_STATE, rnr = IBV_QP_MIN_RNR_TIMER, pkey = IBV_QP_PKEY_INDEX,
            port = IBV_QP_PORT, qkey = IBV_QP_QKEY, av = IBV_QP_AV, rate = IBV_QP_RATE_LIMIT,
            notify = IBV_QP_EN_SQD_ASYNC_NOTIFY, timeout = IBV_QP_TIMEOUT, retry = IBV_QP_RETRY_CNT,
            rnr_retry = IBV_QP_RNR_RETRY, reads = IBV_QP_MAX_QP_RD_ATOMIC,
            dest_reads = IBV_QP_MAX_DEST_RD_ATOMIC;
  const struct {
    ibv_qp_state cur, next;
    int rc, uc, ud, raw, xrc_send, xrc_recv;
  } kernel[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT, 0, 0, 0, 0, 0, 0},
      {IBV_QPS_INIT, IBV_QPS_INIT, pkey | port | access, pkey | port | access, pkey | port | qkey, 0,
       pkey | port | access, pkey | port | access},
      {IBV_QPS_INIT, IBV_QPS_RTR, alt | access | pkey | rate, alt | access | pkey | rate, pkey | qkey | rate,
       0, alt | access | pkey | rate, alt | access | pkey},
      {IBV_QPS_RTR, IBV_QPS_RTS, cur | alt | access | rnr | mig | rate, cur | alt | access | mig | rate,
       cur | qkey | rate, rate, cur | alt | access | mig | rate, cur | alt | access | rnr | mig},
      {IBV_QPS_RTS, IBV_QPS_RTS, cur | alt | access | rnr | mig | rate, cur | alt | access | mig | rate,
       cur | qkey | rate, rate, cur | alt | access | mig | rate, cur | alt | access | rnr | mig},
      {IBV_QPS_RTS, IBV_QPS_SQD, notify, notify, notify, 0, notify, notify},
      {IBV_QPS_SQD, IBV_QPS_RTS, cur | alt | access | rnr | mig, cur | alt | access | mig, cur | qkey, 0,
       cur | alt | access | mig, cur | alt | access | rnr | mig},
      {IBV_QPS_SQD, IBV_QPS_SQD,
       port | av | timeout | retry | rnr_retry | reads | dest_reads | alt | access | pkey | rnr | mig,
       av | alt | access | pkey | mig, pkey | qkey, 0,
       port | av | timeout | retry | rnr_retry | reads | alt | access | pkey | mig,
       port | av | timeout | dest_reads | alt | access | pkey | rnr | mig},
      {IBV_QPS_SQE, IBV_QPS_RTS, 0, cur | access, cur | qkey, 0, 0, 0},
  };
  for (const auto& row : kernel) {
    const int expected[] = {row.rc, row.uc, row.ud, row.raw, row.xrc_send, row.xrc_recv};
    for (size_t i = 0; i < std::size(kTypes); ++i)
      EXPECT_EQ(find_transition(kTypes[i], row.cur, row.next).optional, expected[i])
          << testing::PrintToString(TransitionCase{kTypes[i], row.cur, row.next});
  }
}

TEST(QpStateTable, NothingButTheStateComesWithResetAndErr) {
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state cur : kStates)
      for (const ibv_qp_state next : {IBV_QPS_RESET, IBV_QPS_ERR}) {
        const Transition row = find_transition(type, cur, next);
        EXPECT_EQ(row.required | row.optional, 0) << testing::PrintToString(TransitionCase{type, cur, next});
      }
}

TEST(QpStateTable, BitsThatNoAttributeHasAreNotSupported) {
  for (int position = 21; position < 31; ++position) {
    const int bit = 1 << position;
    if (bit == IBV_QP_RATE_LIMIT) continue;
    int offending = 0;
    EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE | bit, &offending),
              EOPNOTSUPP)
        << position;
    EXPECT_EQ(offending, bit) << position;
  }
}

TEST(QpStateTable, XrcIgnoresTheHalfItLacks) {
  EXPECT_EQ(ignored_attribute_bits(IBV_QPT_XRC_SEND), IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(ignored_attribute_bits(IBV_QPT_XRC_RECV),
            IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET})
    EXPECT_EQ(ignored_attribute_bits(type), 0) << name_of_qp_type(type);
}

TEST(QpStateTable, UnknownTypesAndStatesHaveNoTransition) {
  EXPECT_FALSE(find_transition(IBV_QPT_DRIVER, IBV_QPS_RESET, IBV_QPS_INIT).legal);
  EXPECT_FALSE(find_transition(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET).legal);
  EXPECT_FALSE(find_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN).legal);
  EXPECT_EQ(
      check_transition(IBV_QPT_RC, IBV_QPS_RESET, static_cast<ibv_qp_state>(200), IBV_QP_STATE, nullptr),
      EINVAL);
}

TEST(QpStateTable, OffendingBitsNeedNotBeAsked) {
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_STATE, nullptr), EINVAL);
}

TEST(QpStateTable, NamesAreThoseOfTheManualPage) {
  EXPECT_STREQ(name_of_attribute_bit(IBV_QP_PKEY_INDEX), "IBV_QP_PKEY_INDEX");
  EXPECT_STREQ(name_of_attribute_bit(IBV_QP_RATE_LIMIT), "IBV_QP_RATE_LIMIT");
  EXPECT_STREQ(name_of_state(IBV_QPS_SQD), "SQD");
  EXPECT_STREQ(name_of_qp_type(IBV_QPT_XRC_RECV), "XRC_RECV");
}

TEST(QpStateTable, EveryAttributeHasAName) {
  for (const int bit : all_attribute_bits()) EXPECT_STRNE(name_of_attribute_bit(bit), "unknown") << bit;
}

TEST(QpStateTable, WhatHasNoNameIsUnknown) {
  EXPECT_STREQ(name_of_attribute_bit(0), "unknown");
  EXPECT_STREQ(name_of_attribute_bit(IBV_QP_STATE | IBV_QP_PORT), "unknown");
  EXPECT_STREQ(name_of_state(IBV_QPS_UNKNOWN), "unknown");
  EXPECT_STREQ(name_of_qp_type(IBV_QPT_DRIVER), "unknown");
}

}  // namespace
}  // namespace verbena
