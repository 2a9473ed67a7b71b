// SPDX-License-Identifier: BSD-2-Clause
//
// Extended completion queues (ibv_create_cq_ex(3)).
#include <chrono>

#include "pair.h"

namespace verbena::test {
namespace {

class CqExTest : public PairTest {
 protected:
  ibv_cq_init_attr_ex attr(uint64_t wc_flags = IBV_WC_STANDARD_FLAGS) const {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 64;
    attr.cq_context = const_cast<CqExTest*>(this);
    attr.wc_flags = wc_flags;
    return attr;
  }
  Cq make_cq_ex(ibv_cq_init_attr_ex attr) {
    ex_ = ibv_create_cq_ex(context_.get(), &attr);
    return Cq(ex_ != nullptr ? ibv_cq_ex_to_cq(ex_) : nullptr);
  }
  void expect_refusal(ibv_cq_init_attr_ex attr, int error) {
    errno = 0;
    EXPECT_EQ(make_cq_ex(attr), nullptr);
    EXPECT_EQ(errno, error);
  }

  // The responder receives into the extended CQ from now on.
  void receive_into(ibv_cq_init_attr_ex attr) {
    responder_.reset();
    extended_ = make_cq_ex(attr);
    ASSERT_NE(extended_, nullptr) << strerror(errno);
    ibv_qp_init_attr init = qp_init(responder_cq_.get(), extended_.get());
    responder_.reset(ibv_create_qp(pd_.get(), &init));
    ASSERT_EQ(to_state(requester_.get(), IBV_QPS_RESET), 0);
    connect(requester_.get(), responder_->qp_num);
    connect(responder_.get(), requester_->qp_num);
  }
  void TearDown() override { responder_.reset(); }

  void send(uint32_t length, uint64_t id = 1001) {
    ASSERT_EQ(receive(remote_.sge(0, 4096), id), 0);
    ibv_sge sge = local_.sge(0, length);
    ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge);
    wr.imm_data = htobe32(0x55);
    ASSERT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
  }
  int start() {
    ibv_poll_cq_attr attr = {};
    return ibv_start_poll(ex_, &attr);
  }

  Cq extended_;
  ibv_cq_ex* ex_ = nullptr;
};

TEST_F(CqExTest, HasRoomAndContext) {
  const Cq cq = make_cq_ex(attr());
  ASSERT_NE(cq, nullptr) << strerror(errno);
  EXPECT_GE(ex_->cqe, 64);
  EXPECT_EQ(ex_->context, context_.get());
  EXPECT_EQ(ex_->cq_context, this);
}

TEST_F(CqExTest, AnEmptyCqAnswersEnoentAndStaysUsable) {
  receive_into(attr());
  EXPECT_EQ(start(), ENOENT);
  EXPECT_EQ(start(), ENOENT);
  send(8);
  EXPECT_EQ(start(), 0);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, ACompletionTellsWhatWasAskedFor) {
  receive_into(attr());
  send(100);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ex_->wr_id, 1001u);
  EXPECT_EQ(ibv_wc_read_opcode(ex_), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_vendor_err(ex_), 0u);
  EXPECT_EQ(ibv_wc_read_byte_len(ex_), 100u);
  EXPECT_EQ(ibv_wc_read_imm_data(ex_), htobe32(0x55));
  EXPECT_EQ(ibv_wc_read_qp_num(ex_), responder_->qp_num);
  EXPECT_EQ(ibv_wc_read_src_qp(ex_), requester_->qp_num);
  EXPECT_TRUE(ibv_wc_read_wc_flags(ex_) & IBV_WC_WITH_IMM);
  EXPECT_EQ(ibv_wc_read_slid(ex_), 0u);
  EXPECT_EQ(ibv_wc_read_sl(ex_), 0u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex_), 0u);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, NextPollGoesOnUntilNothingIsLeft) {
  receive_into(attr());
  for (uint64_t id = 1; id <= 3; id++) send(8, id);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 1u);
  EXPECT_EQ(ibv_next_poll(ex_), 0);
  EXPECT_EQ(ex_->wr_id, 2u);
  EXPECT_EQ(ibv_next_poll(ex_), 0);
  EXPECT_EQ(ex_->wr_id, 3u);
  EXPECT_EQ(ibv_next_poll(ex_), ENOENT);
  ibv_end_poll(ex_);
  EXPECT_EQ(start(), ENOENT);
}

TEST_F(CqExTest, WhatABatchLeavesComesInTheNextOne) {
  receive_into(attr());
  for (uint64_t id = 1; id <= 2; id++) send(8, id);
  ASSERT_EQ(start(), 0);
  ibv_end_poll(ex_);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 2u);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, TheMessageIsThereWhenItsCompletionIs) {
  receive_into(attr());
  local_.fill(5);
  send(80);
  ASSERT_EQ(start(), 0);
  ibv_end_poll(ex_);
  EXPECT_TRUE(same_bytes(80));
}

TEST_F(CqExTest, ItCanBePolledAsAnOrdinaryCq) {
  receive_into(attr());
  send(8);
  EXPECT_EQ(next_completion(extended_.get()).wr_id, 1001u);
}

TEST_F(CqExTest, AFailureIsTold) {
  receive_into(attr());
  ASSERT_EQ(receive(remote_.sge(0, 4)), 0);
  ibv_sge sge = local_.sge(0, 100);
  ASSERT_EQ(carry_out(request(IBV_WR_SEND, &sge)).status, IBV_WC_REM_INV_REQ_ERR);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->status, IBV_WC_LOC_LEN_ERR);
  EXPECT_NE(ibv_wc_read_vendor_err(ex_), 0u);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, AnEndPollTooManyDoesNoHarm) {
  receive_into(attr());
  EXPECT_EQ(start(), ENOENT);
  ibv_end_poll(ex_);
  send(8);
  EXPECT_EQ(start(), 0);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, PollAttributesAreRefused) {
  receive_into(attr());
  ibv_poll_cq_attr unknown = {.comp_mask = 1};
  EXPECT_EQ(ibv_start_poll(ex_, &unknown), EINVAL);
}

TEST_F(CqExTest, VlanFlowTagAndTagMatchingReadAsNone) {
  receive_into(attr(IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO));
  send(8);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ibv_wc_read_cvlan(ex_), 0u);
  EXPECT_EQ(ibv_wc_read_flow_tag(ex_), 0u);
  ibv_wc_tm_info info = {.tag = 1, .priv = 1};
  ibv_wc_read_tm_info(ex_, &info);
  EXPECT_EQ(info.tag, 0u);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, ASingleThreadedCqWorks) {
  ibv_cq_init_attr_ex single = attr();
  single.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  single.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  receive_into(single);
  send(8);
  EXPECT_EQ(start(), 0);
  ibv_end_poll(ex_);
}

TEST_F(CqExTest, EventsComeThroughAChannel) {
  const Channel channel(ibv_create_comp_channel(context_.get()));
  ibv_cq_init_attr_ex with_channel = attr();
  with_channel.channel = channel.get();
  receive_into(with_channel);
  ASSERT_EQ(ibv_req_notify_cq(extended_.get(), 0), 0);
  send(8);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel.get(), &cq, &cq_context), 0);
  EXPECT_EQ(cq, extended_.get());
  EXPECT_EQ(cq_context, this);
  ibv_ack_cq_events(cq, 1);
  responder_.reset();
  extended_.reset();
}

// ---- time stamps ----

class StampTest : public CqExTest {
 protected:
  uint64_t clock() const {
    ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
    EXPECT_EQ(ibv_query_rt_values_ex(context_.get(), &values), 0);
    return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(values.raw_clock.tv_nsec);
  }
};

TEST_F(StampTest, TheDeviceTellsWhatItsClockCounts) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &device), 0);
  EXPECT_GT(device.hca_core_clock, 0u);
  EXPECT_NE(device.completion_timestamp_mask, 0u);
}

TEST_F(StampTest, TheStampLiesBetweenTheClocksBeforeAndAfter) {
  receive_into(attr(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
  const uint64_t before = clock();
  send(8);
  const uint64_t after = clock();
  ASSERT_EQ(start(), 0);
  EXPECT_GE(ibv_wc_read_completion_ts(ex_), before);
  EXPECT_LE(ibv_wc_read_completion_ts(ex_), after);
  ibv_end_poll(ex_);
}

TEST_F(StampTest, LaterCompletionsAreNotStampedEarlier) {
  receive_into(attr(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
  for (uint64_t id = 1; id <= 3; id++) send(8, id);
  ASSERT_EQ(start(), 0);
  uint64_t last = ibv_wc_read_completion_ts(ex_);
  while (ibv_next_poll(ex_) == 0) {
    EXPECT_GE(ibv_wc_read_completion_ts(ex_), last);
    last = ibv_wc_read_completion_ts(ex_);
  }
  ibv_end_poll(ex_);
}

TEST_F(StampTest, TheWallClockStampIsWallTime) {
  receive_into(attr(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));
  const auto wall = [] {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  };
  const uint64_t before = wall();
  send(8);
  const uint64_t after = wall();
  ASSERT_EQ(start(), 0);
  const uint64_t stamp = ibv_wc_read_completion_wallclock_ns(ex_);
  ibv_end_poll(ex_);
  constexpr uint64_t kSlack = 1'000'000;  // the clocks are not read at the same instant
  EXPECT_GE(stamp, before - kSlack);
  EXPECT_LE(stamp, after + kSlack);
}

// A small message travels in the completion entry, where the time stamp is, too.
TEST_F(StampTest, EverySizeOfMessageArrivesWhole) {
  receive_into(attr(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
  for (uint32_t length = 80; length <= 104; length++) {
    local_.fill(static_cast<uint8_t>(length));
    send(length);
    ASSERT_EQ(start(), 0);
    EXPECT_EQ(ibv_wc_read_byte_len(ex_), length);
    ibv_end_poll(ex_);
    EXPECT_TRUE(same_bytes(length)) << length;
  }
}

TEST_F(StampTest, SendCompletionsAreStampedToo) {
  responder_.reset();
  const Cq cq = make_cq_ex(attr(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
  ASSERT_NE(cq, nullptr);
  requester_.reset();
  ibv_qp_init_attr init = qp_init(cq.get(), cq.get());
  requester_.reset(ibv_create_qp(pd_.get(), &init));
  connect(requester_.get(), requester_->qp_num);
  const uint64_t before = clock();
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  ASSERT_EQ(post(&wr), 0);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->status, IBV_WC_SUCCESS);
  EXPECT_GE(ibv_wc_read_completion_ts(ex_), before);
  ibv_end_poll(ex_);
  requester_.reset();
}

// ---- IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN ----

class IgnoredOverrunTest : public CqExTest {
 protected:
  void SetUp() override {
    CqExTest::SetUp();
    ibv_cq_init_attr_ex small = attr();
    small.cqe = 1;
    small.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    small.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    receive_into(small);
  }
};

TEST_F(IgnoredOverrunTest, MessagesArriveWithoutTheirCompletions) {
  const uint32_t length = 64;
  for (size_t i = 0; i < 4; i++) ASSERT_EQ(receive(remote_.sge(i * length, length), i), 0);
  local_.fill(3);
  for (size_t i = 0; i < 4; i++)
    ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(i * length, length)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 0u);
  EXPECT_EQ(ibv_next_poll(ex_), ENOENT);
  ibv_end_poll(ex_);
  EXPECT_TRUE(same_bytes(size_t{4} * length));
  EXPECT_EQ(state_of(responder_.get()), IBV_QPS_RTS);
}

TEST_F(IgnoredOverrunTest, TheCqGoesOnWhenItHasBeenPolled) {
  for (size_t i = 0; i < 3; i++) ASSERT_EQ(receive(remote_.sge(0, 64), i), 0);
  for (int i = 0; i < 2; i++) ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(start(), 0);
  ibv_end_poll(ex_);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 2u);
  ibv_end_poll(ex_);
}

// ---- refusals ----

TEST_F(CqExTest, UnknownFieldsAreRefused) { expect_refusal(attr(uint64_t{1} << 40), EOPNOTSUPP); }
TEST_F(CqExTest, UnknownMasksAreRefused) {
  ibv_cq_init_attr_ex unknown = attr();
  unknown.comp_mask = 1 << 10;
  expect_refusal(unknown, EINVAL);
}
TEST_F(CqExTest, UnknownFlagsAreRefused) {
  ibv_cq_init_attr_ex unknown = attr();
  unknown.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  unknown.flags = 1 << 10;
  expect_refusal(unknown, EINVAL);
}
TEST_F(CqExTest, FlagsOutsideTheMaskMeanNothing) {
  ibv_cq_init_attr_ex unmasked = attr();
  unmasked.flags = 1 << 10;
  EXPECT_NE(make_cq_ex(unmasked), nullptr);
}
TEST_F(CqExTest, NoEntriesAreRefused) {
  ibv_cq_init_attr_ex none = attr();
  none.cqe = 0;
  expect_refusal(none, EINVAL);
}
TEST_F(CqExTest, MoreEntriesThanTheDeviceHasAreRefused) {
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(context_.get(), &device), 0);
  ibv_cq_init_attr_ex many = attr();
  many.cqe = static_cast<uint32_t>(device.max_cqe) + 1;
  expect_refusal(many, EINVAL);
  many.cqe = UINT32_MAX;
  expect_refusal(many, EINVAL);
}
TEST_F(CqExTest, ACompletionVectorTheDeviceDoesNotHaveIsRefused) {
  ibv_cq_init_attr_ex far = attr();
  far.comp_vector = static_cast<uint32_t>(context_->num_comp_vectors);
  expect_refusal(far, EINVAL);
}
TEST_F(CqExTest, AnOrdinaryPdIsNoParentDomain) {
  ibv_cq_init_attr_ex ordinary = attr();
  ordinary.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  ordinary.parent_domain = pd_.get();
  expect_refusal(ordinary, EINVAL);
}

}  // namespace
}  // namespace verbena::test
