// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/qp_state_table.h"

#include <cerrno>

#include "engine/rules/program_enum.h"

// Where the kernel's table says more than the manual page, or differs from it:
// - ibv_modify_qp(3) lists the required attributes of UD, UC, RC and RAW_PACKET from RESET to RTS; kernel and
//   page agree there. XRC, the optional attributes and every other transition are the kernel's alone.
// - IBV_QP_CAP: the page lists it as modifiable "if the HCA supports QP resizing". The kernel's table has it
//   in no transition, so it is EINVAL on every device that uses the table, and here.
// - IBV_QP_RATE_LIMIT: in the page and in kernels before 7.0 it is for RAW_PACKET alone, on RTR to RTS and
//   RTS to RTS. Since then RC has it as well, also on INIT to RTR ("IB/core: Extend rate limit support for RC
//   QPs"). Drivers accept it for other types ("IB/core: Delegate IB_QP_RATE_LIMIT validation to drivers";
//   mlx5: UC and UD). This device accepts it for every type that sends.
// - RAW_PACKET has no attribute on RTS to SQD, nor on transitions from SQD (not even EN_SQD_ASYNC_NOTIFY).
// - RESET to ERR is not in the table. The specification allows ERR from any state (10.3.1, figure of the
//   state machine). Drivers that use the table refuse it, and so does this one.
// - IBV_QP_STATE may be left out only if the state stays the same.
// - SQD to SQD: uverbs adds IBV_QP_PORT to IBV_QP_AV (uverbs_cmd.c, modify_qp()), and the table refuses that
//   for UC. So a UC QP cannot change its path in SQD through uverbs, by accident. Here IBV_QP_AV alone is
//   legal, as in the table.
// - XRC: attributes of the half that a QP does not have are dropped unread (ignored_attribute_bits()).

namespace verbena {
namespace {

constexpr int kStates = IBV_QPS_ERR + 1;

constexpr int kPkey = IBV_QP_PKEY_INDEX;
constexpr int kPort = IBV_QP_PORT;
constexpr int kQkey = IBV_QP_QKEY;
constexpr int kAccess = IBV_QP_ACCESS_FLAGS;
constexpr int kCur = IBV_QP_CUR_STATE;
constexpr int kAv = IBV_QP_AV;
constexpr int kTimeout = IBV_QP_TIMEOUT;
constexpr int kRetry = IBV_QP_RETRY_CNT;
constexpr int kRnrRetry = IBV_QP_RNR_RETRY;
constexpr int kSqPsn = IBV_QP_SQ_PSN;
constexpr int kInitiatorReads = IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kResponderReads = IBV_QP_MAX_DEST_RD_ATOMIC;
constexpr int kMinRnr = IBV_QP_MIN_RNR_TIMER;
constexpr int kAlt = IBV_QP_ALT_PATH;
constexpr int kMig = IBV_QP_PATH_MIG_STATE;
constexpr int kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kRate = IBV_QP_RATE_LIMIT;

// Sets that recur.
constexpr int kConnectedToInit = kPkey | kPort | kAccess;
constexpr int kConnectedToRtr = kAv | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kResponderToRtr = kResponderReads | kMinRnr;  // where the QP answers READs and sends RNR NAKs
constexpr int kConnectedRtrOptional = kAlt | kAccess | kPkey;
constexpr int kInitiatorToRts = kTimeout | kRetry | kRnrRetry | kSqPsn | kInitiatorReads;
constexpr int kConnectedRts = kCur | kAlt | kAccess | kMig;  // optional to RTS, in RTS and back from SQD
constexpr int kConnectedSqd = kAv | kAlt | kAccess | kPkey | kMig;
constexpr int kInitiatorSqd = kTimeout | kRetry | kRnrRetry | kInitiatorReads;

enum Column { kRc, kUc, kUd, kRawPacket, kXrcSend, kXrcRecv, kColumns };

struct TypeName {
  ibv_qp_type type;
  Column column;
  const char* name;
};

constexpr TypeName kTypes[] = {
    {IBV_QPT_RC, kRc, "RC"},
    {IBV_QPT_UC, kUc, "UC"},
    {IBV_QPT_UD, kUd, "UD"},
    {IBV_QPT_RAW_PACKET, kRawPacket, "RAW_PACKET"},
    {IBV_QPT_XRC_SEND, kXrcSend, "XRC_SEND"},
    {IBV_QPT_XRC_RECV, kXrcRecv, "XRC_RECV"},
};

struct Row {
  ibv_qp_state cur;
  ibv_qp_state next;
  int required[kColumns];
  int optional[kColumns];
};

// All legal transitions. Columns: RC, UC, UD, RAW_PACKET, XRC_SEND, XRC_RECV.
// clang-format off
constexpr Row kRows[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RESET, IBV_QPS_INIT,
     {kConnectedToInit, kConnectedToInit, kPkey | kPort | kQkey, kPort, kConnectedToInit, kConnectedToInit},
     {}},

    {IBV_QPS_INIT, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_INIT, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_INIT, IBV_QPS_INIT,
     {},
     {kConnectedToInit, kConnectedToInit, kPkey | kPort | kQkey, 0, kConnectedToInit, kConnectedToInit}},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     {kConnectedToRtr | kResponderToRtr, kConnectedToRtr, 0, 0, kConnectedToRtr, kConnectedToRtr | kResponderToRtr},
     {kConnectedRtrOptional | kRate, kConnectedRtrOptional | kRate, kPkey | kQkey | kRate, 0, kConnectedRtrOptional | kRate,
      kConnectedRtrOptional}},

    {IBV_QPS_RTR, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RTR, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     {kInitiatorToRts, kSqPsn, kSqPsn, 0, kInitiatorToRts, kTimeout | kSqPsn},
     {kConnectedRts | kMinRnr | kRate, kConnectedRts | kRate, kCur | kQkey | kRate, kRate, kConnectedRts | kRate,
      kConnectedRts | kMinRnr}},

    {IBV_QPS_RTS, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_RTS, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_RTS, IBV_QPS_RTS,
     {},
     {kConnectedRts | kMinRnr | kRate, kConnectedRts | kRate, kCur | kQkey | kRate, kRate, kConnectedRts | kRate,
      kConnectedRts | kMinRnr}},
    {IBV_QPS_RTS, IBV_QPS_SQD,
     {},
     {kNotify, kNotify, kNotify, 0, kNotify, kNotify}},

    {IBV_QPS_SQD, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_SQD, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_SQD, IBV_QPS_RTS,
     {},
     {kConnectedRts | kMinRnr, kConnectedRts, kCur | kQkey, 0, kConnectedRts, kConnectedRts | kMinRnr}},
    {IBV_QPS_SQD, IBV_QPS_SQD,
     {},
     {kConnectedSqd | kPort | kInitiatorSqd | kResponderReads | kMinRnr, kConnectedSqd, kPkey | kQkey, 0,
      kConnectedSqd | kPort | kInitiatorSqd, kConnectedSqd | kPort | kTimeout | kResponderReads | kMinRnr}},

    {IBV_QPS_SQE, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_SQE, IBV_QPS_ERR, {}, {}},
    {IBV_QPS_SQE, IBV_QPS_RTS,
     {},
     {0, kCur | kAccess, kCur | kQkey, 0, 0, 0}},

    {IBV_QPS_ERR, IBV_QPS_RESET, {}, {}},
    {IBV_QPS_ERR, IBV_QPS_ERR, {}, {}},
};
// clang-format on

struct AttributeName {
  int bit;
  const char* name;
};

constexpr AttributeName kAttributes[] = {
    {IBV_QP_STATE, "IBV_QP_STATE"},
    {IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    {IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"},
    {IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX"},
    {IBV_QP_PORT, "IBV_QP_PORT"},
    {IBV_QP_QKEY, "IBV_QP_QKEY"},
    {IBV_QP_AV, "IBV_QP_AV"},
    {IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU"},
    {IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT"},
    {IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT"},
    {IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY"},
    {IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"},
    {IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH"},
    {IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"},
    {IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    {IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"},
    {IBV_QP_CAP, "IBV_QP_CAP"},
    {IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN"},
    {IBV_QP_RATE_LIMIT, "IBV_QP_RATE_LIMIT"},
};

constexpr int known_attributes() noexcept {
  int all = 0;
  for (const AttributeName& attribute : kAttributes) all |= attribute.bit;
  return all;
}

constexpr const char* kStateNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static_assert(sizeof(kStateNames) / sizeof(kStateNames[0]) == kStates);

constexpr const char* kUnknown = "unknown";

const TypeName* find_type(ibv_qp_type type) noexcept {
  for (const TypeName& row : kTypes)
    if (row.type == type) return &row;
  return nullptr;
}

}  // namespace

Transition find_transition(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_state& next) noexcept {
  const TypeName* known = find_type(type);
  if (known == nullptr) return {};
  const unsigned to = number_in(next);
  for (const Row& row : kRows)
    if (row.cur == cur && row.next == to)
      return {true, row.required[known->column], row.optional[known->column]};
  return {};
}

int ignored_attribute_bits(ibv_qp_type type) noexcept {
  if (type == IBV_QPT_XRC_SEND) return kResponderReads | kMinRnr;
  if (type == IBV_QPT_XRC_RECV) return kInitiatorReads | kRetry | kRnrRetry;
  return 0;
}

int check_transition(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_state& next, int attr_mask,
                     int* offending_bits) noexcept {
  int ignored = 0;
  int& offending = offending_bits != nullptr ? *offending_bits : ignored;

  offending = attr_mask & ~known_attributes();
  if (offending != 0) return EOPNOTSUPP;

  const Transition transition = find_transition(type, cur, next);
  if (!transition.legal) return EINVAL;
  // IBV_QP_STATE may be left out only if the state stays the same.
  if (cur != number_in(next) && (attr_mask & IBV_QP_STATE) == 0) {
    offending = IBV_QP_STATE;
    return EINVAL;
  }

  const int given = attr_mask & ~ignored_attribute_bits(type);
  offending = transition.required & ~given;
  if (offending == 0) offending = given & ~(transition.required | transition.optional | IBV_QP_STATE);
  return offending == 0 ? 0 : EINVAL;
}

const char* name_of_attribute_bit(int bit) noexcept {
  for (const AttributeName& attribute : kAttributes)
    if (attribute.bit == bit) return attribute.name;
  return kUnknown;
}

const char* name_of_state(const ibv_qp_state& state) noexcept {
  const unsigned index = number_in(state);
  return index < kStates ? kStateNames[index] : kUnknown;
}

const char* name_of_qp_type(ibv_qp_type type) noexcept {
  const TypeName* known = find_type(type);
  return known != nullptr ? known->name : kUnknown;
}

}  // namespace verbena
