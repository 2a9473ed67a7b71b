// SPDX-License-Identifier: BSD-2-Clause
//
// What ibv_post_send(3) and ibv_post_recv(3) refuse through bad_wr, and how a SEND fails: InfiniBand 9.9
// and 10.10, ibv_poll_cq(3).
#include <algorithm>
#include <vector>

#include "pair.h"

namespace verbena::test {
namespace {

class SendErrorTest : public PairTest {};

// ---- refused ----

TEST_F(SendErrorTest, AFullSendQueueRefusesTheFirstThatDoesNotFit) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(requester_.get(), &attr, IBV_QP_CAP, &init), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr one = request(IBV_WR_SEND, &sge);
  ibv_send_wr* bad = nullptr;
  for (uint32_t i = 1; i < attr.cap.max_send_wr; i++)
    ASSERT_EQ(ibv_post_send(requester_.get(), &one, &bad), 0);
  ibv_send_wr list[2] = {one, one};
  list[0].next = &list[1];
  EXPECT_EQ(ibv_post_send(requester_.get(), list, &bad), ENOMEM);
  EXPECT_EQ(bad, &list[1]);
}

TEST_F(SendErrorTest, APolledCompletionFreesTheSlots) {
  for (int round = 0; round < 8; round++) {
    for (int i = 0; i < 16; i++) ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
    ibv_sge sge = local_.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_SEND, &sge);
    for (int i = 0; i < 16; i++) {
      wr.send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
      ASSERT_EQ(post(&wr), 0) << "request " << i << " of round " << round;
    }
    ASSERT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
    for (int i = 0; i < 16; i++) ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  }
}

TEST_F(SendErrorTest, AFullReceiveQueueRefuses) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(responder_.get(), &attr, IBV_QP_CAP, &init), 0);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; i++) ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(responder_.get(), &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
}

// The errno values are mlx5's (providers/mlx5/qp.c).
TEST_F(SendErrorTest, TooManySges) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(requester_.get(), &attr, IBV_QP_CAP, &init), 0);
  std::vector<ibv_sge> list(std::max(attr.cap.max_send_sge, attr.cap.max_recv_sge) + 1, local_.sge(0, 1));
  ibv_send_wr wr = request(IBV_WR_SEND, list.data(), static_cast<int>(attr.cap.max_send_sge) + 1);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(requester_.get(), &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  EXPECT_EQ(receive(list.data(), static_cast<int>(attr.cap.max_recv_sge) + 1), EINVAL);
}

TEST_F(SendErrorTest, TooMuchInlineData) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(requester_.get(), &attr, IBV_QP_CAP, &init), 0);
  ibv_sge sge = local_.sge(0, attr.cap.max_inline_data + 1);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.send_flags |= IBV_SEND_INLINE;
  EXPECT_NE(post(&wr), 0);
  EXPECT_EQ(state_of(requester_.get()), IBV_QPS_RTS);
}

TEST_F(SendErrorTest, AnOpcodeThatIsNone) {
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(static_cast<ibv_wr_opcode>(99), &sge);
  EXPECT_EQ(post(&wr), EINVAL);
}

TEST_F(SendErrorTest, WhatStandsBeforeTheBadOneIsPosted) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr list[2] = {request(IBV_WR_SEND, &sge), request(static_cast<ibv_wr_opcode>(99), &sge)};
  list[0].next = &list[1];
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(requester_.get(), list, &bad), EINVAL);
  EXPECT_EQ(bad, &list[1]);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
}

TEST_F(SendErrorTest, SendIsRefusedBeforeRts) {
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_RESET), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  EXPECT_EQ(post(&wr), EINVAL) << "in RESET";
  ASSERT_EQ(to_init(requester_.get()), 0);
  EXPECT_EQ(post(&wr), EINVAL) << "in INIT";
  ASSERT_EQ(to_rtr(requester_.get(), responder_->qp_num), 0);
  EXPECT_EQ(post(&wr), EINVAL) << "in RTR";
}

TEST_F(SendErrorTest, ReceiveIsRefusedInReset) {
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_RESET), 0);
  EXPECT_EQ(receive(remote_.sge(0, 8)), EINVAL);
}

// ---- completed with an error ----

TEST_F(SendErrorTest, AWrongLkeyIsALocalProtectionError) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  sge.lkey ^= 0xff00;
  const ibv_wc wc = carry_out(request(IBV_WR_SEND, &sge, 1, 77));
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.wr_id, 77u);
  EXPECT_EQ(wc.qp_num, requester_->qp_num);
  EXPECT_EQ(state_of(requester_.get()), IBV_QPS_ERR);
}

TEST_F(SendErrorTest, ALengthBeyondTheMrIsALocalProtectionError) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(kBufferSize - 4, 8)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SendErrorTest, TheRkeyIsNoLkey) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  sge.lkey = local_.rkey();
  EXPECT_EQ(carry_out(request(IBV_WR_SEND, &sge)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SendErrorTest, AnMrOfAnotherPdIsALocalProtectionError) {
  Pd other(ibv_alloc_pd(context_.get()));
  Buffer buffer(other.get(), 64);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, buffer.sge(0, 8)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SendErrorTest, ADeregisteredMrIsALocalProtectionError) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  local_.unregister();
  EXPECT_EQ(carry_out(request(IBV_WR_SEND, &sge)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(SendErrorTest, TooSmallAReceiveBufferFailsBothSides) {
  ASSERT_EQ(receive(remote_.sge(0, 16)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 17)).status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(requester_.get()), IBV_QPS_ERR);
  EXPECT_EQ(state_of(responder_.get()), IBV_QPS_ERR);
}

TEST_F(SendErrorTest, AReceiveBufferWithoutLocalWriteFailsBothSides) {
  Buffer read_only(pd_.get(), 64, 0);
  ASSERT_EQ(receive(read_only.sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_PROT_ERR);
}

// Only the bytes that the message reaches are checked (engine/responder/responder.cc, respond_to_send()).
TEST_F(SendErrorTest, AReceiveBufferMayEndBeyondItsMrIfTheMessageDoesNot) {
  for (const uint32_t size : {8u, 256u, 4096u, 32768u}) {
    make_pair();
    local_.fill(static_cast<uint8_t>(size / 8));
    for (int i = 0; i < 2; ++i) ASSERT_EQ(receive(remote_.sge(kBufferSize - size, size + 4096)), 0);
    ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, size)).status, IBV_WC_SUCCESS) << size << " bytes";
    EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
    EXPECT_TRUE(same_bytes(size, 0, kBufferSize - size));
    EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, size + 1)).status, IBV_WC_REM_OP_ERR) << size << " bytes";
    EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_PROT_ERR);
  }
}

TEST_F(SendErrorTest, NoReceiveAndNoRetriesIsRnrRetryExceeded) {
  make_pair({.rnr_retry = 0});
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(requester_.get()), IBV_QPS_ERR);
  EXPECT_EQ(state_of(responder_.get()), IBV_QPS_RTS);
}

TEST_F(SendErrorTest, ToADestroyedQpRetriesAreExceeded) {
  make_pair({.timeout = 1, .retry_count = 1});
  responder_.reset();
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(SendErrorTest, WhatFollowsAFailureIsFlushed) {
  make_pair({.rnr_retry = 0});
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr list[3] = {request(IBV_WR_SEND, &sge, 1, 1), request(IBV_WR_SEND, &sge, 1, 2),
                         request(IBV_WR_SEND, &sge, 1, 3)};
  list[0].next = &list[1];
  list[1].next = &list[2];
  list[1].send_flags = 0;  // a failed request completes even when unsignaled
  ASSERT_EQ(post(list), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_RNR_RETRY_EXC_ERR);
  for (uint64_t id : {2, 3}) {
    const ibv_wc wc = next_completion(cq_.get());
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, id);
  }
}

TEST_F(SendErrorTest, GoingToErrorFlushesTheReceives) {
  ASSERT_EQ(receive(remote_.sge(0, 64), 21), 0);
  ASSERT_EQ(receive(remote_.sge(0, 64), 22), 0);
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_ERR), 0);
  for (uint64_t id : {21, 22}) {
    const ibv_wc wc = next_completion(responder_cq_.get());
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, id);
  }
}

// InfiniBand 10.3.1.5: in the error state requests are taken and flushed.
TEST_F(SendErrorTest, WhatIsPostedInErrorIsFlushed) {
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_WR_FLUSH_ERR);
  ibv_sge sge = local_.sge(0, 8);
  ASSERT_EQ(receive_on(requester_.get(), &sge, 1, 9), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_WR_FLUSH_ERR);
}

TEST_F(SendErrorTest, ResetForgetsWhatWasPosted) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_RESET), 0);
  EXPECT_TRUE(is_empty(responder_cq_.get()));
}

TEST_F(SendErrorTest, CompletionsOfADestroyedQpAreGone) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  responder_.reset();
  EXPECT_TRUE(is_empty(responder_cq_.get()));
}

}  // namespace
}  // namespace verbena::test
