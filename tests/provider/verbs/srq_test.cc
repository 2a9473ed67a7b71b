// SPDX-License-Identifier: BSD-2-Clause
//
// Shared receive queues (ibv_create_srq(3), ibv_post_srq_recv(3)) and the QPs that take from them.
#include "srq_fixture.h"

namespace verbena::test {
namespace {

TEST_F(SrqTest, IsAtLeastAsLargeAsAskedFor) {
  ibv_srq_attr attr = {};
  ASSERT_EQ(ibv_query_srq(srq_.get(), &attr), 0);
  EXPECT_GE(attr.max_wr, 64u);
  EXPECT_GE(attr.max_sge, 4u);
}

TEST_F(SrqTest, IsNotArmedWhenCreated) {
  ibv_srq_init_attr attr = {};
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 3};
  Srq srq(ibv_create_srq(pd_.get(), &attr));
  ibv_srq_attr seen = {};
  ASSERT_EQ(ibv_query_srq(srq.get(), &seen), 0);
  EXPECT_EQ(seen.srq_limit, 0u);
}

TEST_F(SrqTest, TheLargestThatIsClaimedIsGiven) {
  EXPECT_NE(make_srq(static_cast<uint32_t>(device_.max_srq_wr), static_cast<uint32_t>(device_.max_srq_sge)),
            nullptr);
}

TEST_F(SrqTest, OneRequestMoreThanClaimedIsInvalid) {
  EXPECT_EQ(make_srq(static_cast<uint32_t>(device_.max_srq_wr) + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SrqTest, OneEntryMoreThanClaimedIsInvalid) {
  EXPECT_EQ(make_srq(1, static_cast<uint32_t>(device_.max_srq_sge) + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SrqTest, StaysWhileAQueuePairUsesIt) {
  const Qp receiver = make_receiver();
  EXPECT_EQ(ibv_destroy_srq(srq_.get()), EBUSY);
}

TEST_F(SrqTest, KeepsItsProtectionDomain) { EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY); }

TEST_F(SrqTest, AQueuePairWithOneHasNoReceiveQueue) {
  ibv_qp_init_attr init = qp_init(receive_cq_.get(), receive_cq_.get());
  init.srq = srq_.get();
  const Qp qp(ibv_create_qp(pd_.get(), &init));
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(init.cap.max_recv_wr, 0u);
  EXPECT_EQ(init.cap.max_recv_sge, 0u);
}

// A receive queue that is not used may be of any size.
TEST_F(SrqTest, AQueuePairWithOneMayAskForAnyReceiveQueue) {
  ibv_qp_init_attr init = qp_init(receive_cq_.get(), receive_cq_.get());
  init.srq = srq_.get();
  init.cap.max_recv_wr = UINT32_MAX;
  EXPECT_NE(Qp(ibv_create_qp(pd_.get(), &init)), nullptr);
}

TEST_F(SrqTest, AQueuePairWithOneTakesNoReceives) {
  const Line line = make_line();
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(line.receiver.get(), &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
}

// Lengths around those at which the bytes take another path.
class SrqMessageTest : public SrqTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(SrqMessageTest, Arrives) {
  const Line line = make_line();
  local_.fill(3);
  ASSERT_EQ(post(77, 4096, GetParam()), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, GetParam())), IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wr_id, 77u);
  EXPECT_EQ(wc.byte_len, GetParam());
  EXPECT_EQ(wc.qp_num, line.receiver->qp_num);
  EXPECT_EQ(memcmp(local_.data(), remote_.data() + 4096, GetParam()), 0);
}

INSTANTIATE_TEST_SUITE_P(Length, SrqMessageTest,
                         testing::Values(0u, 1u, 32u, 96u, 97u, 256u, 257u, 4096u, 262144u, 262145u,
                                         900000u));

TEST_F(SrqTest, ScattersOverTheList) {
  const Line line = make_line();
  local_.fill(1);
  ASSERT_EQ(post(1, {remote_.sge(0, 10), remote_.sge(100, 0), remote_.sge(200, 40)}), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 50)), IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(receive_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), remote_.data(), 10), 0);
  EXPECT_EQ(memcmp(local_.data() + 10, remote_.data() + 200, 40), 0);
}

TEST_F(SrqTest, IsTakenInOrderByTheFirstThatComes) {
  const Line first = make_line(), second = make_line();
  for (uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post(id, 64 * id, 64), 0);
  for (ibv_qp* qp : {second.sender.get(), first.sender.get(), first.sender.get(), second.sender.get()})
    ASSERT_EQ(carry_out(qp, local_.sge(0, 8)), IBV_WC_SUCCESS);
  const uint32_t numbers[] = {second.receiver->qp_num, first.receiver->qp_num, first.receiver->qp_num,
                              second.receiver->qp_num};
  for (uint64_t id = 0; id < 4; ++id) {
    const ibv_wc wc = next_completion(receive_cq_.get());
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, numbers[id]);
  }
}

TEST_F(SrqTest, AWriteWithImmediateTakesOne) {
  const Line line = make_line();
  ASSERT_EQ(post(5, 512, 64), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8), IBV_WR_RDMA_WRITE_WITH_IMM), IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.wr_id, 5u);
}

TEST_F(SrqTest, IsFullWhileCompletionsAreNotPolled) {
  const Line line = make_line();
  for (uint64_t id = 0; id < 64; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  EXPECT_EQ(post(64, 0, 64), ENOMEM);
}

TEST_F(SrqTest, HasRoomAgainForEachCompletionPolled) {
  const Line line = make_line();
  for (uint64_t id = 0; id < 64; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(receive_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(post(64, 0, 64), 0);
  EXPECT_EQ(post(65, 0, 64), ENOMEM);
}

TEST_F(SrqTest, AListTooLongIsInvalid) {
  EXPECT_EQ(post(0, std::vector<ibv_sge>(static_cast<size_t>(device_.max_srq_sge) + 1)), EINVAL);
}

TEST_F(SrqTest, ARequestThatFindsItEmptyWaits) {
  const Line line = make_line();
  ASSERT_EQ(send(line.sender.get(), local_.sge(0, 8)), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
  ASSERT_EQ(post(1, 0, 64), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
}

TEST_F(SrqTest, ARequestThatFindsItEmptyTooOftenFails) {
  const Line line = make_line({.rnr_retry = 1, .min_rnr_timer = 1});
  EXPECT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(SrqTest, AMessageTooLongCostsTheRequest) {
  const Line line = make_line();
  ASSERT_EQ(post(9, 0, 16), 0);
  EXPECT_EQ(carry_out(line.sender.get(), local_.sge(0, 17)), IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.wr_id, 9u);
}

TEST_F(SrqTest, AKeyThatDoesNotHoldCostsTheRequest) {
  const Line line = make_line();
  ibv_sge sge = remote_.sge(0, 64);
  sge.lkey ^= 0xff00;
  ASSERT_EQ(post(9, {sge}), 0);
  EXPECT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(next_status(receive_cq_.get()), IBV_WC_LOC_PROT_ERR);
}

TEST_F(SrqTest, ABufferMayEndBeyondItsRegionIfTheMessageDoesNot) {
  const Line line = make_line();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(post(1, kBufferSize - 64, 4096), 0);
  EXPECT_EQ(carry_out(line.sender.get(), local_.sge(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(receive_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(carry_out(line.sender.get(), local_.sge(0, 65)), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(next_status(receive_cq_.get()), IBV_WC_LOC_PROT_ERR);
}

// The keys of receive requests are those of the SRQ's domain, whatever domain the QP is in (vol.
// 1, 10.2.9.1).
TEST_F(SrqTest, MayBeOfAnotherDomainThanTheQueuePair) {
  const Pd other(ibv_alloc_pd(context_.get()));
  ibv_qp_init_attr init = qp_init(receive_cq_.get(), receive_cq_.get());
  init.srq = srq_.get();
  const Qp sender = make_qp(), receiver(ibv_create_qp(other.get(), &init));
  ASSERT_NE(receiver, nullptr);
  connect(sender.get(), receiver->qp_num);
  connect(receiver.get(), sender->qp_num);
  ASSERT_EQ(post(1, 0, 4096), 0);
  EXPECT_EQ(carry_out(sender.get(), local_.sge(0, 4096)), IBV_WC_SUCCESS);
}

// ---- the limit ----

TEST_F(SrqTest, TellsWhenFewerThanTheLimitAreLeft) {
  const Line line = make_line();
  for (uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  ASSERT_EQ(arm(2), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  ASSERT_FALSE(is_readable(context_->async_fd));
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  std::optional<ibv_async_event> event = next_async_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event->element.srq, srq_.get());
  ibv_ack_async_event(&*event);
}

TEST_F(SrqTest, IsDisarmedByItsEvent) {
  const Line line = make_line();
  for (uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  ASSERT_EQ(arm(3), 0);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  ASSERT_EQ(next_event(), IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(limit(), 0u);
  ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  EXPECT_FALSE(is_readable(context_->async_fd));
}

TEST_F(SrqTest, KeepsALimitThatIsNotReached) {
  ASSERT_EQ(post(0, 0, 64), 0);
  ASSERT_EQ(arm(1), 0);
  EXPECT_EQ(limit(), 1u);
  EXPECT_FALSE(is_readable(context_->async_fd));
}

// As mlx5: a program that arms too late must not wait without end.
TEST_F(SrqTest, TellsAtOnceWhenFewerAreLeftAlready) {
  ASSERT_EQ(arm(1), 0);
  EXPECT_EQ(next_event(), IBV_EVENT_SRQ_LIMIT_REACHED);
}

TEST_F(SrqTest, ALimitAboveItsSizeIsInvalid) { EXPECT_EQ(arm(65), EINVAL); }

TEST_F(SrqTest, DestroyTakesTheUnreadEventAlong) {
  ASSERT_EQ(arm(1), 0);
  ASSERT_TRUE(becomes_readable(context_->async_fd));
  srq_.reset();
  EXPECT_FALSE(is_readable(context_->async_fd));
}

// ---- queue pairs in error (vol. 1, 10.2.9.4 and 11.6.3.2) ----

TEST_F(SrqTest, AQueuePairInErrorLeavesItsRequestsAlone) {
  const Line line = make_line();
  ASSERT_EQ(post(0, 0, 64), 0);
  ASSERT_EQ(to_state(line.receiver.get(), IBV_QPS_ERR), 0);
  EXPECT_TRUE(is_empty(receive_cq_.get()));
}

TEST_F(SrqTest, AQueuePairInErrorTellsThatItTakesNoMore) {
  const Line line = make_line();
  ASSERT_EQ(to_state(line.receiver.get(), IBV_QPS_ERR), 0);
  std::optional<ibv_async_event> event = next_async_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event->element.qp, line.receiver.get());
  ibv_ack_async_event(&*event);
}

TEST_F(SrqTest, TheOthersGoOnWhenAQueuePairFails) {
  const Line failed = make_line(), other = make_line();
  ASSERT_EQ(post(1, 0, 64), 0);
  ASSERT_EQ(to_state(failed.receiver.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(carry_out(other.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(receive_cq_.get()).wr_id, 1u);
}

TEST_F(SrqTest, CompletionsLeaveWithTheirQueuePairAndTheirRoomIsFree) {
  Line line = make_line();
  for (uint64_t id = 0; id < 64; ++id) ASSERT_EQ(post(id, 0, 64), 0);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(carry_out(line.sender.get(), local_.sge(0, 8)), IBV_WC_SUCCESS);
  line.receiver.reset();
  EXPECT_TRUE(is_empty(receive_cq_.get()));
  for (uint64_t id = 0; id < 10; ++id) EXPECT_EQ(post(id, 0, 64), 0) << id;
}

// The first chunk has taken a request when the QP that was to complete it goes.
TEST_F(SrqTest, ARequestInTheMiddleOfAMessageIsFlushed) {
  const Line line = make_line();
  ASSERT_EQ(post(42, 0, kBufferSize), 0);
  ASSERT_EQ(send(line.sender.get(), local_.sge(0, kBufferSize)), 0);
  ASSERT_EQ(to_state(line.receiver.get(), IBV_QPS_ERR), 0);
  const ibv_wc wc = next_completion(receive_cq_.get());
  EXPECT_EQ(wc.wr_id, 42u);
  // The service thread may have completed it before.
  EXPECT_TRUE(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_SUCCESS) << wc.status;
}

}  // namespace
}  // namespace verbena::test
