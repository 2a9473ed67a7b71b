// SPDX-License-Identifier: BSD-2-Clause
//
// What the requester sends when, and in which order requests complete, whatever order their outcomes come in.
#include <algorithm>

#include "unit/engine/requester/scripted_transport.h"

namespace verbena {
namespace {

using SentNumbers = std::vector<uint64_t>;
using Ends = ScriptedRequester::Ends;

TEST(RequesterOrder, RequestsAreSentAtOnceAndCompleteWhenAcknowledged) {
  ScriptedRequester requester;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(requester.post_send_request(10 + i), 0);
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2}));
  EXPECT_TRUE(requester.ends().empty());
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{10, IBV_WC_SUCCESS}, {11, IBV_WC_SUCCESS}}));
  requester.ack(3);
  EXPECT_EQ(requester.ends(), (Ends{{12, IBV_WC_SUCCESS}}));
}

TEST(RequesterOrder, PsnsCountThePacketsOfRequestsInFlight) {
  ScriptedRequester requester({.sq_psn = 0xfffffe, .rq_psn = 0xfffffe});
  ASSERT_EQ(requester.post_request(IBV_WR_SEND, 1, 3000), 0);  // three packets of 1,024 bytes
  ASSERT_EQ(requester.post_send_request(2), 0);
  ASSERT_EQ(requester.post_send_request(3), 0);
  EXPECT_EQ(requester.transport.log[0].psn, 0xfffffeu);
  EXPECT_EQ(requester.transport.log[1].psn, 1u);
  EXPECT_EQ(requester.transport.log[2].psn, 2u);
  requester.ack(3);
  EXPECT_EQ(requester.qp().shared->send_psn.load(), 3u);
}

TEST(RequesterOrder, RepeatedAndOldAcknowledgementsChangeNothing) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(1), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.ack(1), requester.ack(1), requester.ack(0);
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}}));
}

TEST(RequesterOrder, AnAcknowledgementOfWhatWasNotSentCompletesOnlyWhatWas) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.ack(1000);
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}}));
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.ack(0);
  EXPECT_TRUE(requester.ends().empty()) << "it was not sent when that came";
}

TEST(RequesterOrder, AReadCompletesByItsResponseAlone) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 1), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.ack(2);
  EXPECT_TRUE(requester.ends().empty()) << "the SEND is done, but the READ before it is not";
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}}));
  EXPECT_FALSE(requester.respond(0)) << "a repeated response is of no use";
}

TEST(RequesterOrder, AResponseAcknowledgesWhatCameBeforeIt) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(1), 0);
  ASSERT_EQ(requester.post_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 2), 0);
  EXPECT_TRUE(requester.respond(1));
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}}));
}

TEST(RequesterOrder, ASendIsNotAwaitedByAResponse) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(1), 0);
  EXPECT_FALSE(requester.respond(0));
  EXPECT_FALSE(requester.respond(1));
  EXPECT_TRUE(requester.ends().empty());
}

TEST(RequesterOrder, UnsignaledRequestsHaveNoCompletion) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(1, 0), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{2, IBV_WC_SUCCESS}}));
}

// ---- limits ----

TEST(RequesterLimits, NoMoreReadsAreInFlightThanMaxRdAtomic) {
  ScriptedRequester requester({.max_rd_atomic = 2});
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, i), 0);
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1}));
  EXPECT_TRUE(requester.respond(1)) << "it counts as soon as it is there, though it completes later";
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2}));
  EXPECT_TRUE(requester.ends().empty());
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2, 3}));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_SUCCESS}}));
}

TEST(RequesterLimits, SendsDoNotOvertakeAReadThatWaits) {
  ScriptedRequester requester({.max_rd_atomic = 1});
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0), 0);
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 1), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0}));
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2}));
}

TEST(RequesterLimits, AFencedRequestWaitsForResponsesAndNotForAcknowledgements) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_EQ(requester.post_send_request(1, IBV_SEND_FENCE | IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1}));
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 2), 0);
  ASSERT_EQ(requester.post_send_request(3, IBV_SEND_FENCE | IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2}));
  EXPECT_TRUE(requester.respond(2));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2, 3}));
}

// ---- a transport that does not take all at once ----

TEST(RequesterChunks, ALongRequestIsSentInPartsWithoutAPause) {
  ScriptedRequester requester;
  requester.transport.results = {{SendOutcome::kPart}, {SendOutcome::kPart}};
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_WRITE, 1, 3000), 0);
  ASSERT_EQ(requester.sent_numbers(), (SentNumbers{0, 0, 0}));
  EXPECT_EQ(requester.transport.log[1].done, 1024u);
  EXPECT_EQ(requester.transport.log[2].done, 2048u);
  EXPECT_EQ(requester.transport.log[2].psn, requester.transport.log[0].psn);
  requester.ack(1);
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}}));
}

TEST(RequesterChunks, ABlockedTransportIsTriedAgain) {
  ScriptedRequester requester;
  requester.transport.results = {{SendOutcome::kBlocked}, {SendOutcome::kYield}, {SendOutcome::kBlocked}};
  ASSERT_EQ(requester.post_send_request(1), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  ASSERT_TRUE(requester.sends(5));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 0, 0, 0, 1}));
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}}));
}

// ---- draining ----

TEST(RequesterDrain, SqdLetsFinishWhatIsInFlightAndBeginsNothing) {
  ScriptedRequester requester({.max_rd_atomic = 1});
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0), 0);
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(modify_qp(&requester.qp(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_EQ(async_event(requester.pair().context.get(), 0).type, UINT32_MAX) << "a READ is in flight";
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(async_event(requester.pair().context.get()).type, uint32_t{IBV_EVENT_SQ_DRAINED});
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0}));
  ASSERT_EQ(to_state(&requester.qp(), IBV_QPS_RTS), 0);
  ASSERT_TRUE(requester.sends(2));
  EXPECT_TRUE(requester.respond(1));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_SUCCESS}}));
}

}  // namespace
}  // namespace verbena
