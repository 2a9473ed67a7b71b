// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/send_rules.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace verbena {
namespace {

constexpr int kOpcodes = IBV_WR_TSO + 1;
constexpr uint32_t kEveryOpcode = ((1u << kOpcodes) - 1) | 1u << kAtomicWrite;

SendLimits usual_limits() {
  SendLimits l;
  l.max_sge = 3;
  l.max_inline = 64;
  l.max_message = 1u << 20;
  l.opcodes = kEveryOpcode;
  return l;
}

struct WorkRequest {
  ibv_sge sges[4] = {};
  ibv_mw window = {};
  ibv_send_wr wr = {};
  explicit WorkRequest(ibv_wr_opcode opcode, unsigned flags = 0) {
    wr.opcode = opcode;
    if (opcode == IBV_WR_BIND_MW) wr.bind_mw.mw = &window;
    wr.send_flags = flags;
    wr.sg_list = sges;
  }
};

ibv_wr_opcode opcode(int number) { return static_cast<ibv_wr_opcode>(number); }

// ---- posting ------------------------------------------------------------------------------------------

TEST(PostSend, OpcodesAndTypesMatchTheManualPage) {
  const ibv_qp_type columns[] = {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET};
  const struct {
    ibv_wr_opcode opcode;
    const char* allowed;
  } manual[] = {
      {IBV_WR_SEND, "xxxxx"},
      {IBV_WR_SEND_WITH_IMM, "xxxx-"},
      {IBV_WR_RDMA_WRITE, "-xxx-"},
      {IBV_WR_RDMA_WRITE_WITH_IMM, "-xxx-"},
      {IBV_WR_RDMA_READ, "--xx-"},
      {IBV_WR_ATOMIC_CMP_AND_SWP, "--xx-"},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, "--xx-"},
      {IBV_WR_LOCAL_INV, "-xxx-"},
      {IBV_WR_BIND_MW, "-xxx-"},
      {IBV_WR_SEND_WITH_INV, "-xxx-"},
      {IBV_WR_TSO, "x---x"},
  };
  for (const auto& row : manual)
    for (int column = 0; column < 5; ++column)
      EXPECT_EQ(check_send_wr(usual_limits(), columns[column], WorkRequest(row.opcode).wr, nullptr),
                row.allowed[column] == 'x' ? 0 : EINVAL)
          << find_send_operation(row.opcode)->name << ", column " << column;
}

TEST(PostSend, ReceivingQpsSendNothing) {
  for (int number = 0; number < kOpcodes; ++number)
    EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_XRC_RECV, WorkRequest(opcode(number)).wr, nullptr),
              EINVAL)
        << number;
}

TEST(PostSend, OddTypesOfQpSendNothing) {
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_DRIVER, WorkRequest(IBV_WR_SEND).wr, nullptr), EINVAL);
}

TEST(PostSend, UnknownOpcodesAreRefused) {
  for (const int number : {-1, kOpcodes, 14, 31, 32, 255})
    EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, WorkRequest(opcode(number)).wr, nullptr), EINVAL)
        << number;
}

TEST(PostSend, AnAtomicWriteIsForReliableQps) {
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, WorkRequest(kAtomicWrite).wr, nullptr), 0);
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_UC, WorkRequest(kAtomicWrite).wr, nullptr), EINVAL);
}

TEST(PostSend, AnAtomicWriteMayBeInlineOnEveryQp) {
  SendLimits l = usual_limits();
  l.max_inline = 0;
  ibv_sge sge = {.addr = 0, .length = 8, .lkey = 0};
  WorkRequest request(kAtomicWrite);
  request.wr.send_flags |= IBV_SEND_INLINE;
  request.wr.sg_list = &sge;
  request.wr.num_sge = 1;
  EXPECT_EQ(check_send_wr(l, IBV_QPT_RC, request.wr, nullptr), 0);
  sge.length = 9;
  EXPECT_EQ(check_send_wr(l, IBV_QPT_RC, request.wr, nullptr), ENOMEM);
}

TEST(PostSend, OpcodesTheDeviceLacksAreNotSupported) {
  for (int number = 0; number < kOpcodes; ++number) {
    SendLimits l = usual_limits();
    l.opcodes &= ~(1u << number);
    const ibv_qp_type type = number == IBV_WR_TSO ? IBV_QPT_UD : IBV_QPT_RC;
    EXPECT_EQ(check_send_wr(l, type, WorkRequest(opcode(number)).wr, nullptr), EOPNOTSUPP) << number;
  }
}

TEST(PostSend, InlineIsForSendAndWriteOnly) {
  const std::set<ibv_wr_opcode> inlined = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
                                           IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};
  for (int number = 0; number < kOpcodes; ++number) {
    const ibv_qp_type type = number == IBV_WR_TSO ? IBV_QPT_UD : IBV_QPT_RC;
    EXPECT_EQ(check_send_wr(usual_limits(), type, WorkRequest(opcode(number), IBV_SEND_INLINE).wr, nullptr),
              inlined.count(opcode(number)) ? 0 : EINVAL)
        << number;
  }
}

TEST(PostSend, OtherFlagsAreIgnoredWhereTheyMeanNothing) {
  const unsigned others = ~static_cast<unsigned>(IBV_SEND_INLINE);
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, WorkRequest(IBV_WR_RDMA_READ, others).wr, nullptr), 0);
}

TEST(PostSend, ABindNamesItsWindow) {
  WorkRequest request(IBV_WR_BIND_MW);
  request.wr.bind_mw.mw = nullptr;
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), EINVAL);
}

TEST(PostSend, ABindOfARangeNamesItsRegion) {
  WorkRequest request(IBV_WR_BIND_MW);
  request.wr.bind_mw.bind_info.length = 8;
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), EINVAL);
  ibv_mr region = {};
  request.wr.bind_mw.bind_info.mr = &region;
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), 0);
}

TEST(PostSend, NumberOfSges) {
  const struct {
    int num_sge;
    int refusal;
  } rows[] = {{-1, EINVAL}, {INT32_MIN, EINVAL}, {0, 0}, {3, 0}, {4, ENOMEM}, {INT32_MAX, ENOMEM}};
  for (const auto& row : rows) {
    WorkRequest request(IBV_WR_SEND);
    request.wr.num_sge = row.num_sge;
    EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), row.refusal) << row.num_sge;
  }
}

TEST(PostSend, SgesNeedAList) {
  WorkRequest request(IBV_WR_SEND);
  request.wr.sg_list = nullptr;
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), 0);
  request.wr.num_sge = 1;
  EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), EINVAL);
}

TEST(PostSend, InlineLengthIsTheSumOfTheSges) {
  const struct {
    uint32_t first, second;
    int refusal;
  } rows[] = {
      {32, 31, 0}, {32, 32, 0}, {32, 33, ENOMEM}, {UINT32_MAX, 1, ENOMEM}, {UINT32_MAX, UINT32_MAX, ENOMEM}};
  for (const auto& row : rows) {
    WorkRequest request(IBV_WR_SEND, IBV_SEND_INLINE);
    request.wr.num_sge = 2;
    request.sges[0].length = row.first;
    request.sges[1].length = row.second;
    EXPECT_EQ(check_send_wr(usual_limits(), IBV_QPT_RC, request.wr, nullptr), row.refusal)
        << row.first << " + " << row.second;
  }
}

TEST(PostSend, RefusalSaysWhyAndSuccessDoesNot) {
  const char* why = nullptr;
  check_send_wr(usual_limits(), IBV_QPT_RC, WorkRequest(IBV_WR_RDMA_READ, IBV_SEND_INLINE).wr, &why);
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("IBV_SEND_INLINE"), std::string::npos) << why;
  check_send_wr(usual_limits(), IBV_QPT_RC, WorkRequest(IBV_WR_SEND).wr, &why);
  EXPECT_EQ(why, nullptr);
}

TEST(PostRecv, NumberOfSges) {
  ibv_sge sge{};
  const struct {
    int num_sge;
    ibv_sge* list;
    int refusal;
  } rows[] = {{-1, &sge, EINVAL}, {0, nullptr, 0}, {1, nullptr, EINVAL}, {3, &sge, 0}, {4, &sge, EINVAL}};
  for (const auto& row : rows) {
    ibv_recv_wr wr{};
    wr.num_sge = row.num_sge;
    wr.sg_list = row.list;
    EXPECT_EQ(check_recv_wr(3, wr, nullptr), row.refusal) << row.num_sge;
  }
}

TEST(MessageLength, SumsBeyondThirtyTwoBits) {
  WorkRequest request(IBV_WR_SEND);
  request.wr.num_sge = 3;
  for (ibv_sge& sge : request.sges) sge.length = UINT32_MAX;
  EXPECT_EQ(message_length(request.wr), 3 * uint64_t{UINT32_MAX});
}

// ---- operations ---------------------------------------------------------------------------------------

TEST(Operation, CompletionsAreThoseOfPollCq) {
  const struct {
    ibv_wr_opcode opcode;
    ibv_wc_opcode completion;
  } rows[] = {{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
              {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
              {IBV_WR_SEND, IBV_WC_SEND},
              {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
              {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
              {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
              {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD},
              {IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV},
              {IBV_WR_BIND_MW, IBV_WC_BIND_MW},
              {IBV_WR_SEND_WITH_INV, IBV_WC_SEND},
              {IBV_WR_TSO, IBV_WC_TSO}};
  for (const auto& row : rows)
    EXPECT_EQ(find_send_operation(row.opcode)->completion, row.completion) << row.opcode;
}

TEST(Operation, ReceiversSeeWhatConsumesAReceive) {
  const struct {
    ibv_wr_opcode opcode;
    ibv_wc_opcode received;
    unsigned flags;
  } rows[] = {{IBV_WR_SEND, IBV_WC_RECV, 0},
              {IBV_WR_SEND_WITH_IMM, IBV_WC_RECV, IBV_WC_WITH_IMM},
              {IBV_WR_SEND_WITH_INV, IBV_WC_RECV, IBV_WC_WITH_INV},
              {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM}};
  for (const auto& row : rows) {
    const SendOperation& operation = *find_send_operation(row.opcode);
    EXPECT_TRUE(operation.consumes_receive) << operation.name;
    EXPECT_EQ(operation.received, row.received) << operation.name;
    EXPECT_EQ(operation.received_flags, row.flags) << operation.name;
  }
}

TEST(Operation, OneSidedOnesConsumeNoReceive) {
  for (const ibv_wr_opcode each : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                   IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW})
    EXPECT_FALSE(find_send_operation(each)->consumes_receive) << each;
}

TEST(Operation, RemoteAddressesComeWithARight) {
  for (int number = 0; number < kOpcodes; ++number) {
    const SendOperation& operation = *find_send_operation(opcode(number));
    EXPECT_EQ(operation.remote_address, operation.remote_access != 0) << operation.name;
  }
}

TEST(Operation, ImmediateIsCarriedWhereItIsReceived) {
  for (int number = 0; number < kOpcodes; ++number) {
    const SendOperation& operation = *find_send_operation(opcode(number));
    EXPECT_EQ(operation.carries_immediate, operation.received_flags == IBV_WC_WITH_IMM) << operation.name;
    EXPECT_EQ(operation.carries_invalidate, operation.received_flags == IBV_WC_WITH_INV) << operation.name;
  }
}

TEST(Operation, WhatScattersAwaitsAResponse) {
  for (int number = 0; number < kOpcodes; ++number) {
    const SendOperation& operation = *find_send_operation(opcode(number));
    EXPECT_EQ(operation.sges == SgeUse::scatter, operation.awaits_response) << operation.name;
  }
}

// ---- execution ----------------------------------------------------------------------------------------

TEST(SendLength, EndsAtTheLongestMessage) {
  for (const ibv_wr_opcode each : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    const SendOperation& operation = *find_send_operation(each);
    EXPECT_EQ(check_send_length(usual_limits(), operation, 0), VendorError::none) << operation.name;
    EXPECT_EQ(check_send_length(usual_limits(), operation, 1u << 20), VendorError::none) << operation.name;
    EXPECT_EQ(check_send_length(usual_limits(), operation, (1u << 20) + 1), VendorError::message_too_long)
        << operation.name;
  }
}

TEST(SendLength, AtomicsTakeEightBytes) {
  for (const ibv_wr_opcode each : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD})
    for (const uint64_t length : {0, 4, 7, 8, 9, 16})
      EXPECT_EQ(check_send_length(usual_limits(), *find_send_operation(each), length),
                length == 8 ? VendorError::none : VendorError::atomic_not_8_bytes)
          << length;
}

constexpr unsigned kAllRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

VendorError verdict(ibv_wr_opcode each, ibv_qp_type responder, unsigned rights = kAllRights,
                    uint8_t reads = 1, uint64_t address = 64) {
  return check_request(*find_send_operation(each), responder, rights, reads, address);
}

TEST(ResponderRequest, EachOperationNeedsItsRightOfTheQp) {
  const struct {
    ibv_wr_opcode opcode;
    unsigned right;
  } rows[] = {{IBV_WR_SEND, 0},
              {IBV_WR_SEND_WITH_IMM, 0},
              {IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
              {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE},
              {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
              {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC},
              {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};
  for (const auto& row : rows) {
    EXPECT_EQ(verdict(row.opcode, IBV_QPT_RC, row.right), VendorError::none) << row.opcode;
    EXPECT_EQ(verdict(row.opcode, IBV_QPT_RC, kAllRights & ~row.right),
              row.right ? VendorError::remote_qp_no_right : VendorError::none)
        << row.opcode;
  }
}

TEST(ResponderRequest, ReadsNeedResources) {
  EXPECT_EQ(verdict(IBV_WR_RDMA_READ, IBV_QPT_RC, kAllRights, 0), VendorError::remote_no_read_resources);
  EXPECT_EQ(verdict(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QPT_RC, kAllRights, 0),
            VendorError::remote_no_read_resources);
  EXPECT_EQ(verdict(IBV_WR_RDMA_WRITE, IBV_QPT_RC, kAllRights, 0), VendorError::none);
}

TEST(ResponderRequest, AtomicsNeedAnAlignedAddress) {
  for (uint64_t offset = 0; offset < 8; ++offset)
    EXPECT_EQ(verdict(IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QPT_RC, kAllRights, 1, 64 + offset),
              offset == 0 ? VendorError::none : VendorError::remote_atomic_misaligned)
        << offset;
}

TEST(ResponderRequest, OtherOperationsTakeAnyAddress) {
  EXPECT_EQ(verdict(IBV_WR_RDMA_READ, IBV_QPT_RC, kAllRights, 1, 65), VendorError::none);
}

TEST(ResponderRequest, XrcReceivesWhatXrcSends) {
  EXPECT_EQ(verdict(IBV_WR_RDMA_READ, IBV_QPT_XRC_RECV), VendorError::none);
  EXPECT_EQ(verdict(IBV_WR_SEND, IBV_QPT_XRC_SEND), VendorError::remote_opcode_refused);
}

TEST(ResponderRequest, UnreliableQpsAnswerNoReads) {
  EXPECT_EQ(verdict(IBV_WR_RDMA_READ, IBV_QPT_UC), VendorError::remote_opcode_refused);
  EXPECT_EQ(verdict(IBV_WR_RDMA_WRITE, IBV_QPT_UD), VendorError::remote_opcode_refused);
}

// ---- vendor_err ---------------------------------------------------------------------------------------

// The high digit of each number stands for one status: this is what the documentation promises.
TEST(VendorErrors, HighDigitTellsTheStatus) {
  const struct {
    uint32_t digit;
    ibv_wc_status status;
  } rows[] = {{1, IBV_WC_LOC_LEN_ERR},    {2, IBV_WC_LOC_QP_OP_ERR},   {3, IBV_WC_LOC_PROT_ERR},
              {4, IBV_WC_WR_FLUSH_ERR},   {5, IBV_WC_MW_BIND_ERR},     {6, IBV_WC_BAD_RESP_ERR},
              {7, IBV_WC_LOC_ACCESS_ERR}, {8, IBV_WC_REM_INV_REQ_ERR}, {9, IBV_WC_REM_ACCESS_ERR},
              {0xa, IBV_WC_REM_OP_ERR},   {0xb, IBV_WC_RETRY_EXC_ERR}, {0xc, IBV_WC_RNR_RETRY_EXC_ERR},
              {0xf, IBV_WC_FATAL_ERR}};
  for (const auto& row : rows) {
    int named = 0;
    for (uint32_t low = 0; low < 16; ++low) {
      const VendorErrorText& error = *find_vendor_error(row.digit << 4 | low);
      if (std::string(error.name) == "unknown") continue;
      ++named;
      EXPECT_EQ(error.status, row.status) << error.name;
    }
    EXPECT_GT(named, 0) << row.digit;
  }
}

TEST(VendorErrors, OnlyTheRespondersRefusalsTouchTheResponder) {
  for (uint32_t number = 0; number < 0x100; ++number) {
    const VendorErrorText& error = *find_vendor_error(number);
    const bool touches = error.responder_event != kNoEvent || error.receive_status != IBV_WC_SUCCESS;
    const bool refused_over_there = number >= 0x80 && number < 0xb0 && std::string(error.name) != "unknown";
    EXPECT_EQ(touches, refused_over_there) << error.name;
  }
}

TEST(VendorErrors, NamesAreDistinct) {
  std::set<std::string> names;
  for (uint32_t number = 0; number < 0x100; ++number) {
    const std::string name = find_vendor_error(number)->name;
    if (name == "unknown") continue;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(VendorErrors, ZeroIsNoError) { EXPECT_EQ(find_vendor_error(0)->status, IBV_WC_SUCCESS); }

TEST(VendorErrors, UnknownNumbersHaveARow) {
  for (const uint32_t number : {0x01u, 0xffu, 0x100u, UINT32_MAX})
    EXPECT_STREQ(find_vendor_error(number)->name, "unknown") << number;
}

}  // namespace
}  // namespace verbena
