// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_post_send(3) and ibv_post_recv(3): SEND with all its options.
#include <arpa/inet.h>

#include "pair.h"

namespace verbena::test {
namespace {

class SendTest : public PairTest {};

TEST_F(SendTest, CompletesOnBothSides) {
  local_.fill(1);
  ASSERT_EQ(receive(remote_.sge(0, 256)), 0);
  const ibv_wc sent = carry_out(IBV_WR_SEND, local_.sge(0, 200));
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 1u);
  EXPECT_EQ(sent.qp_num, requester_->qp_num);
  const ibv_wc received = next_completion(responder_cq_.get());
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 1001u);
  EXPECT_EQ(received.byte_len, 200u);
  EXPECT_EQ(received.qp_num, responder_->qp_num);
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_TRUE(same_bytes(200));
}

TEST_F(SendTest, LeavesTheRestOfTheBufferAlone) {
  local_.fill(1);
  ASSERT_EQ(receive(remote_.sge(0, 256)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 100)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(remote_.data()[100], 0);
}

TEST_F(SendTest, BringsImmediateData) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &sge);
  wr.imm_data = htonl(0xcafe0001);
  ASSERT_EQ(carry_out(wr).opcode, IBV_WC_SEND);
  const ibv_wc received = next_completion(responder_cq_.get());
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(ntohl(received.imm_data), 0xcafe0001);
}

class SendSizeTest : public SendTest, public testing::WithParamInterface<size_t> {};

TEST_P(SendSizeTest, ArrivesWhole) {
  const size_t size = GetParam();
  local_.fill(3);
  ASSERT_EQ(receive(remote_.sge(0, kBufferSize)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, size)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, size);
  EXPECT_TRUE(same_bytes(size));
}
INSTANTIATE_TEST_SUITE_P(Sizes, SendSizeTest,
                         testing::Values(1, 7, 8, 9, 63, 64, 65, 255, 256, 1023, 1024, 1025, 4095, 4096, 4097,
                                         8192, 8193, 65535, 65536));

TEST_F(SendTest, EmptyWithoutAnySge) {
  ASSERT_EQ(receive(nullptr, 0), 0);
  ASSERT_EQ(carry_out(request(IBV_WR_SEND, nullptr, 0)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, 0u);
}

TEST_F(SendTest, GathersAndScatters) {
  local_.fill(5);
  ibv_sge to[] = {remote_.sge(0, 10), remote_.sge(10, 1), remote_.sge(11, 500)};
  ASSERT_EQ(receive(to, 3), 0);
  ibv_sge from[] = {local_.sge(0, 3), local_.sge(3, 97), local_.sge(100, 100), local_.sge(200, 100)};
  ASSERT_EQ(carry_out(request(IBV_WR_SEND, from, 4)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, 300u);
  EXPECT_TRUE(same_bytes(300));
}

// ibv_post_send(3): lkey is not checked, and the buffer may be reused when the call returns.
TEST_F(SendTest, InlineNeedsNoRegistration) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  char text[] = "in the request itself";
  ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(text), .length = sizeof(text), .lkey = 0xdead};
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post(&wr), 0);
  memset(text, 'x', sizeof(text));
  ASSERT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(remote_.data()), "in the request itself");
}

TEST_F(SendTest, InlineDataIsTakenWhileTheReceiverIsNotReady) {
  char text[] = "waits";
  ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(text), .length = sizeof(text), .lkey = 0};
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post(&wr), 0);
  memset(text, 'x', sizeof(text));
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(remote_.data()), "waits");
}

TEST_F(SendTest, UnsignaledLeavesNoCompletion) {
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.send_flags = 0;
  ASSERT_EQ(post(&wr), 0);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(cq_.get()));
}

TEST_F(SendTest, SigAllSignalsEverything) {
  make_pair({}, 1);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  wr.send_flags = 0;
  EXPECT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
}

TEST_F(SendTest, AListCompletesInItsOrder) {
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr list[4];
  for (uint64_t i = 0; i < 4; i++) {
    ASSERT_EQ(receive(remote_.sge(0, 64), 100 + i), 0);
    list[i] = request(IBV_WR_SEND, &sge, 1, 10 + i);
    list[i].next = i < 3 ? &list[i + 1] : nullptr;
  }
  ASSERT_EQ(post(list), 0);
  for (uint64_t i = 0; i < 4; i++) {
    EXPECT_EQ(next_completion(cq_.get()).wr_id, 10 + i);
    EXPECT_EQ(next_completion(responder_cq_.get()).wr_id, 100 + i);
  }
}

TEST_F(SendTest, GoesBothWays) {
  local_.fill(9);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 32)).status, IBV_WC_SUCCESS);
  ibv_sge back = local_.sge(1024, 64);
  ASSERT_EQ(receive_on(requester_.get(), &back, 1, 7), 0);
  ibv_sge sge = remote_.sge(0, 32);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(responder_.get(), &wr, &bad), 0);
  EXPECT_EQ(next_completion(cq_.get()).wr_id, 7u);
  EXPECT_TRUE(same_bytes(32, 1024));
}

TEST_F(SendTest, ToItself) {
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_RESET), 0);
  connect(requester_.get(), requester_->qp_num);
  local_.fill(2);
  ibv_sge to = local_.sge(4096, 64);
  ASSERT_EQ(receive_on(requester_.get(), &to, 1, 5), 0);
  ibv_sge from = local_.sge(0, 64);
  ibv_send_wr wr = request(IBV_WR_SEND, &from);
  ASSERT_EQ(post(&wr), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), local_.data() + 4096, 64), 0);
}

TEST_F(SendTest, AWaitingSenderIsServedWhenAReceiveIsPosted) {
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  ASSERT_EQ(post(&wr), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
}

// A receive may be posted from INIT on (ibv_post_recv(3)).
TEST_F(SendTest, AReceivePostedInInitIsUsed) {
  requester_.reset();
  responder_.reset();
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  requester_.reset(ibv_create_qp(pd_.get(), &init));
  init = qp_init(responder_cq_.get(), responder_cq_.get());
  responder_.reset(ibv_create_qp(pd_.get(), &init));
  ASSERT_EQ(to_init(responder_.get()), 0);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(to_rtr(responder_.get(), requester_->qp_num), 0);
  connect(requester_.get(), responder_->qp_num);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::test
