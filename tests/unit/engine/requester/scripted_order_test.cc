// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a transport that obeys a script: the order of completions, how many READs and
// atomics are in flight, fences, and replies that are late, repeated or of nothing.
#include <gtest/gtest.h>

#include "engine/objects/flight.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

constexpr ibv_wr_opcode kFetchAdd = IBV_WR_ATOMIC_FETCH_AND_ADD;

QpSetup reads_in_flight(uint8_t most) {
  QpSetup setup = ScriptedRequester::usual();
  setup.max_rd_atomic = most;
  return setup;
}

// ---- order ----------------------------------------------------------------------------------------------

TEST(RequesterOrder, ARequestCompletesWhenItIsAcknowledged) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  EXPECT_EQ(there.succeeded(), WrIds{});
  there.ack(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  EXPECT_EQ(there.qp().waiting, Waiting::kNothing);
}

TEST(RequesterOrder, AReplyMayComeAtOnce) {
  ScriptedRequester there;
  there.transport.reply(0, ScriptedReply::ack());
  there.transport.reply(1, ScriptedReply::response());
  ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  ASSERT_EQ(there.read(), 0);
  EXPECT_EQ(there.succeeded(), (WrIds{1}));
}

TEST(RequesterOrder, RequestsAreSentWithoutWaitingForReplies) {
  ScriptedRequester there;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(there.succeeded(), WrIds{});
}

TEST(RequesterOrder, OneAcknowledgementCompletesAllBeforeIt) {
  ScriptedRequester there;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(there.write(), 0);
  there.ack(2);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
  there.ack(3);
  EXPECT_EQ(there.succeeded(), (WrIds{3}));
}

TEST(RequesterOrder, AWriteWaitsForTheReadBeforeIt) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  there.ack(1);
  EXPECT_EQ(there.succeeded(), WrIds{});
  there.respond(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1}));
}

TEST(RequesterOrder, AResponseAcknowledgesAllBeforeIt) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  there.respond(2);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
}

TEST(RequesterOrder, AnAcknowledgementDoesNotStandForAResponse) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  there.ack(0);
  EXPECT_EQ(there.succeeded(), WrIds{});
  there.respond(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
}

TEST(RequesterOrder, ResponsesOutOfOrderCompleteInOrder) {
  ScriptedRequester there;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.read(), 0);
  there.respond(2);
  there.respond(1);
  EXPECT_EQ(there.succeeded(), WrIds{});
  there.respond(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
}

TEST(RequesterOrder, OnlySignaledRequestsHaveACompletion) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(0), 0);
  ASSERT_EQ(there.read(0), 0);
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.write(0), 0);
  there.respond(1);
  there.ack(3);
  EXPECT_EQ(there.succeeded(), (WrIds{2}));
  EXPECT_EQ(there.qp().sq_next, 4u);
}

TEST(RequesterOrder, WithSqSigAllEveryRequestHasACompletion) {
  QpSetup setup = ScriptedRequester::usual();
  setup.all_signaled = true;
  ScriptedRequester there(setup);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.write(0), 0);
  there.ack(2);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
}

TEST(RequesterOrder, PsnsFollowOneAnother) {
  QpSetup setup = ScriptedRequester::usual();
  setup.sq_psn = 0xfffffe;
  ScriptedRequester there(setup);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 3000), 0);  // three packets
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 0), 0);
  ASSERT_EQ(there.post(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 1025), 0);
  ASSERT_EQ(there.write(), 0);
  const SentRequests expected{{0, 0xfffffe}, {1, 1}, {2, 2}, {3, 4}};
  EXPECT_EQ(there.transport.sent, expected);
  there.respond(2);
  EXPECT_EQ(there.qp().requester.psn, 4u);
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.sent.back().psn, 5u);
}

TEST(RequesterOrder, ALongMessageGoesInChunks) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 3 * ScriptedTransport::kChunk + 1), 0);
  EXPECT_EQ(there.transport.sends, 4u);
  there.ack(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
}

TEST(RequesterOrder, WhatAFullTransportHoldsBackGoesLaterInOrder) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  there.transport.set_link(ScriptedLink::kFull);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  EXPECT_TRUE(there.is_scheduled());
  there.transport.set_link(ScriptedLink::kOpen);
  there.drive();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2, 3}));
  EXPECT_FALSE(there.is_scheduled());
  there.ack(3);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2, 3}));
}

TEST(RequesterOrder, ALocalRequestWaitsForAllBeforeIt) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.invalidate(), 0);
  there.ack(1);
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.respond(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1}, {2, VendorError::bind_refused}}));
  EXPECT_EQ(there.state(), IBV_QPS_ERR);
}

// ---- in flight ------------------------------------------------------------------------------------------

TEST(RequesterFlight, NoMoreReadsAndAtomicsThanMaxRdAtomic) {
  for (const uint8_t most : {uint8_t{1}, uint8_t{2}, uint8_t{4}}) {
    ScriptedRequester there(reads_in_flight(most));
    for (int i = 0; i < 6; ++i) ASSERT_EQ(i % 2 == 0 ? there.read() : there.post(kFetchAdd), 0);
    EXPECT_EQ(there.transport.sent.size(), most);
    for (uint64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(there.qp().flight.responses_awaited, std::min<uint64_t>(most, 6 - i));
      there.respond(i);
      EXPECT_EQ(there.transport.sent.size(), std::min<uint64_t>(most + i + 1, 6));
      EXPECT_EQ(there.succeeded(), (WrIds{i}));
    }
  }
}

TEST(RequesterFlight, AResponseOutOfOrderMakesWayForTheNextRead) {
  ScriptedRequester there(reads_in_flight(2));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.read(), 0);
  there.respond(1);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2}));
  EXPECT_EQ(there.succeeded(), WrIds{});
}

TEST(RequesterFlight, AWriteBehindAReadThatWaitsIsNotSentBeforeIt) {
  ScriptedRequester there(reads_in_flight(1));
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  there.respond(0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2}));
}

TEST(RequesterFlight, WritesAreNotCounted) {
  ScriptedRequester there(reads_in_flight(1));
  ASSERT_EQ(there.read(), 0);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.sent.size(), 6u);
}

TEST(RequesterFlight, AReadWithoutMaxRdAtomicFailsInItsTurn) {
  ScriptedRequester there(reads_in_flight(0));
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.read(), 0);
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.ack(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, VendorError::too_many_outstanding_reads}}));
  EXPECT_EQ(there.state(), IBV_QPS_ERR);
}

TEST(RequesterFlight, AFencedRequestWaitsForReadsAndAtomics) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.post(kFetchAdd), 0);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1}));
  there.respond(1);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1}));
  there.respond(0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2, 3}));
}

TEST(RequesterFlight, AFencedRequestDoesNotWaitForWrites) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.read(IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1}));
}

TEST(RequesterFlight, AFencedReadIsNotInFlightTwice) {
  ScriptedRequester there;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.read(IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(there.transport.sent.size(), i + 1);
    there.respond(i);
  }
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
}

// ---- late and repeated replies ---------------------------------------------------------------------------

// Three WRITEs, a READ and a WRITE of which the first two are finished.
struct StaleReplies : ::testing::Test {
  ScriptedRequester there;
  Flight before;

  void SetUp() override {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(there.write(), 0);
    ASSERT_EQ(there.read(), 0);
    ASSERT_EQ(there.write(), 0);
    there.ack(1);
    ASSERT_EQ(there.succeeded(), (WrIds{0, 1}));
    before = there.qp().flight;
  }
  void expect_no_change(const char* what) {
    const Flight& now = there.qp().flight;
    EXPECT_EQ(there.ended(), EndedRequests{}) << what;
    EXPECT_EQ(there.state(), IBV_QPS_RTS) << what;
    EXPECT_EQ(there.qp().sq_next, 2u) << what;
    EXPECT_EQ(now.sent, before.sent) << what;
    EXPECT_EQ(now.begun, before.begun) << what;
    EXPECT_EQ(now.acknowledged, before.acknowledged) << what;
    EXPECT_EQ(now.refused_at, before.refused_at) << what;
    EXPECT_EQ(now.responses_awaited, before.responses_awaited) << what;
    EXPECT_EQ(now.rnr_tries, before.rnr_tries) << what;
    EXPECT_EQ(there.qp().waiting, Waiting::kTransport) << what;
    EXPECT_EQ(there.qp().try_again_at, 0) << what;
    EXPECT_EQ(there.transport.sent.size(), 5u) << what;
  }
};

TEST_F(StaleReplies, OfFinishedRequestsChangeNothing) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{1}}) {
    there.ack(number);
    expect_no_change("ACK");
    there.respond(number);
    expect_no_change("response");
    there.nak(number, VendorError::rkey_unknown);
    expect_no_change("NAK");
    there.rnr(number);
    expect_no_change("RNR NAK");
    there.report(number, ScriptedReply::not_ready(VendorError::peer_gone));
    expect_no_change("not ready");
    there.report(number, ScriptedReply::ready());
    expect_no_change("ready");
  }
}

TEST_F(StaleReplies, OfRequestsThatWereNeverPostedChangeNothing) {
  for (const uint64_t number : {uint64_t{5}, uint64_t{6}, uint64_t{1} << 40, UINT64_MAX}) {
    there.respond(number);
    there.nak(number, VendorError::rkey_unknown);
    there.rnr(number);
    there.report(number, ScriptedReply::not_ready(VendorError::peer_gone));
    there.report(number, ScriptedReply::ready());
    expect_no_change("beyond the send queue");
  }
}

TEST_F(StaleReplies, OfAWriteAreNoResponse) {
  there.respond(2);
  expect_no_change("response to a WRITE");
}

TEST_F(StaleReplies, AResponseTwiceCountsOnce) {
  there.report(3, ScriptedReply::response().twice());
  EXPECT_EQ(there.succeeded(), (WrIds{2, 3}));
  EXPECT_EQ(there.qp().flight.responses_awaited, 0u);
}

TEST_F(StaleReplies, AResponseTwiceBeforeItsTurnCountsOnce) {
  ASSERT_EQ(there.read(), 0);
  there.report(5, ScriptedReply::response().twice());
  EXPECT_EQ(there.qp().flight.responses_awaited, 1u);
  EXPECT_EQ(there.succeeded(), (WrIds{2}));
  there.respond(3);
  EXPECT_EQ(there.succeeded(), (WrIds{3, 4, 5}));
}

TEST_F(StaleReplies, AnAcknowledgementOfWhatWasNotSentCompletesWhatWas) {
  there.respond(3);
  there.ack(1000);
  EXPECT_EQ(there.succeeded(), (WrIds{2, 3, 4}));
  ASSERT_EQ(there.write(), 0);
  there.ack(4);
  EXPECT_EQ(there.succeeded(), WrIds{});
}

}  // namespace
}  // namespace verbena
