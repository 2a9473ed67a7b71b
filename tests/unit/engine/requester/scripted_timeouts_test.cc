// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a transport that obeys a script: timeouts, a responder that is not ready, and
// connections that break. Instants are compared with the clock before and after the call that set them.
#include <gtest/gtest.h>

#include "engine/objects/flight.h"
#include "engine/objects/send_request.h"
#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

QpSetup timeout_of(uint8_t timeout, uint8_t retry_cnt) {
  QpSetup setup;
  setup.timeout = timeout;
  setup.retry_cnt = retry_cnt;
  return setup;
}

// ---- timeouts
// -----------------------------------------------------------------------------------------------

TEST(RequesterTimeout, ComesAfterOneTimeoutMoreThanRetries) {
  ScriptedRequester there;
  for (const uint8_t timeout : {uint8_t{1}, uint8_t{14}, uint8_t{31}})
    for (uint8_t retries = 0; retries <= 7; ++retries) {
      there.begin_again(timeout_of(timeout, retries));
      const uint64_t number = there.qp().sq_posted;
      const uint64_t patience = (retries + 1) * (uint64_t{4096} << timeout);
      expect_instant(there.qp().give_up_at, patience, [&] { EXPECT_EQ(there.write(), 0); });
      EXPECT_GT(there.transport.watched, 0);
      const int64_t deadline = there.qp().give_up_at;
      EXPECT_EQ(there.check_at(deadline - 1), deadline);
      EXPECT_EQ(there.ended(), EndedRequests{});
      EXPECT_EQ(there.check_at(deadline), kEndOfTime);
      EXPECT_EQ(there.ended(), (EndedRequests{{number, VendorError::peer_silent}}));
      EXPECT_EQ(there.state(), IBV_QPS_ERR);
    }
}

TEST(RequesterTimeout, NeverComesWithTimeout0) {
  ScriptedRequester there(timeout_of(0, 0));
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.check_at(kEndOfTime - 1), kEndOfTime - 1);
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
}

TEST(RequesterTimeout, FailsTheFirstUnfinishedRequestAndFlushesTheOthers) {
  ScriptedRequester there;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(there.write(), 0);
  there.ack(0);
  there.expire();
  EXPECT_EQ(there.ended(),
            (EndedRequests{
                {0}, {1, VendorError::peer_silent}, EndedRequest::flushed(2), EndedRequest::flushed(3)}));
}

TEST(RequesterTimeout, RunsFromTheOldestRequestInFlight) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  const int64_t deadline = there.qp().give_up_at;
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.qp().give_up_at, deadline);
}

TEST(RequesterTimeout, BeginsAgainWithEachRequestThatIsFinished) {
  ScriptedRequester there(timeout_of(14, 0));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.pass(60'000'000);
  expect_instant(there.qp().give_up_at, ack_timeout_ns(14), [&] { there.ack(0); });
}

TEST(RequesterTimeout, IsNotPutOffByAStaleAcknowledgement) {
  ScriptedRequester there(timeout_of(14, 0));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.ack(0);
  const int64_t deadline = there.qp().give_up_at;
  there.ack(0);
  EXPECT_EQ(there.qp().give_up_at, deadline);
}

TEST(RequesterTimeout, IsOverWhenNothingIsInFlight) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  there.ack(0);
  EXPECT_EQ(there.check_at(kEndOfTime - 1), kEndOfTime);
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
}

TEST(RequesterTimeout, HasTheGraceOfTheTransport) {
  ScriptedRequester there;
  there.transport.grace = 5'000;
  ASSERT_EQ(there.write(), 0);
  const int64_t deadline = there.qp().give_up_at + 5'000;
  EXPECT_EQ(there.check_at(deadline - 1), deadline);
  EXPECT_EQ(there.check_at(deadline), kEndOfTime);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_silent}}));
}

TEST(RequesterTimeout, SaysWhyThereIsNoPath) {
  ScriptedRequester there;
  there.transport.set_link(ScriptedLink::kDown, VendorError::port_down);
  ASSERT_EQ(there.write(), 0);
  EXPECT_TRUE(there.is_scheduled());
  there.expire();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::port_down}}));
}

TEST(RequesterTimeout, ComesThoughAFullTransportTookNothing) {
  ScriptedRequester there;
  there.transport.set_link(ScriptedLink::kFull);
  ASSERT_EQ(there.write(), 0);
  there.expire();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_silent}}));
}

// ---- a responder that is not ready ------------------------------------------------------------------------

TEST(RequesterNotReady, IsAskedAgainAfterPausesThatDouble) {
  ScriptedRequester there(timeout_of(0, 7));
  ASSERT_EQ(there.write(), 0);
  for (int64_t pause = 200'000, i = 0; i < 9; ++i, pause = std::min<int64_t>(2 * pause, 10'000'000)) {
    expect_instant(there.qp().try_again_at, static_cast<uint64_t>(pause),
                   [&] { there.report(0, ScriptedReply::not_ready(VendorError::peer_mismatch)); });
    EXPECT_TRUE(there.is_scheduled());
    there.retry();
  }
  EXPECT_EQ(there.transport.sent.size(), 10u);
  EXPECT_EQ(there.qp().shared->retries.load(), 9u);
  there.ack(0);
  ASSERT_EQ(there.write(), 0);
  expect_instant(there.qp().try_again_at, 200'000,
                 [&] { there.report(1, ScriptedReply::not_ready(VendorError::peer_mismatch)); });
}

// There is a reply to each of them.
TEST(RequesterNotReady, AllThatWasInFlightIsSentAgainOnce) {
  const ScriptedReply replies[] = {ScriptedReply::not_ready(VendorError::peer_not_ready),
                                   ScriptedReply::rnr(0)};
  for (const ScriptedReply& reply : replies) {
    ScriptedRequester there;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(), 0);
    for (uint64_t number = 0; number < 3; ++number) there.report(number, reply);
    there.retry();
    EXPECT_EQ(there.transport.sent, (SentRequests{{0, 0}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, {2, 2}}));
  }
}

// As many requests as were in flight have a reply each; one of them is late.
TEST(RequesterNotReady, SaysNothingOfTheRequestsBeforeIt) {
  ScriptedRequester there;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(), 0);
  there.report(0, ScriptedReply::not_ready(VendorError::peer_not_ready));
  there.retry();
  there.report(2, ScriptedReply::not_ready(VendorError::peer_not_ready));
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.ack(1);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1}));
  there.retry();
  there.ack(2);
  EXPECT_EQ(there.succeeded(), (WrIds{2}));
}

TEST(RequesterNotReady, DoesNotPutOffTheTimeout) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  const int64_t deadline = there.qp().give_up_at;
  for (int i = 0; i < 3; ++i) {
    there.report(0, ScriptedReply::not_ready(VendorError::peer_mismatch));
    there.qp().try_again_at = now_ns();
    there.drive();
  }
  EXPECT_EQ(there.qp().give_up_at, deadline);
  there.report(0, ScriptedReply::not_ready(VendorError::peer_mismatch));
  there.check_at(deadline);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_mismatch}}));
}

// ---- a connection that breaks -----------------------------------------------------------------------------

TEST(RequesterLoss, WhatIsInFlightIsSentAgainInOrder) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 2048), 0);
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  there.ack(0);
  there.transport.sent.clear();
  there.transport.replace();
  there.drive();
  EXPECT_EQ(there.transport.sent, (SentRequests{{1, 2}, {2, 3}}));
  there.respond(1);
  there.ack(2);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
  EXPECT_EQ(there.qp().flight.responses_awaited, 0u);
}

TEST(RequesterLoss, AReadIsSentAgainAndAnsweredOnce) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.read(), 0);
  there.transport.replace();
  there.drive();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 0, 1}));
  for (const uint64_t number : {0, 1, 1}) there.respond(number);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1}));
  EXPECT_EQ(there.qp().flight.responses_awaited, 0u);
}

TEST(RequesterLoss, ARetryThatWaitedGoesAtOnce) {
  ScriptedRequester there;
  ASSERT_EQ(there.send(), 0);
  there.rnr(0, 31);
  there.transport.replace();
  there.drive();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 0}));
}

TEST(RequesterLoss, AMessageThatWasHalfSentBeginsAgain) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  there.transport.set_link(ScriptedLink::kFull, VendorError::none, 1);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 3 * ScriptedTransport::kChunk), 0);
  EXPECT_EQ(there.qp().sq[1].done, ScriptedTransport::kChunk);
  there.transport.set_link(ScriptedLink::kOpen);
  there.transport.replace();
  const uint64_t before = there.transport.sends;
  there.drive();
  EXPECT_EQ(there.transport.sends - before, 4u);  // the first request, and three chunks
  there.ack(1);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1}));
}

TEST(RequesterLoss, WithoutAPathTheTimeoutSaysWhy) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  there.transport.set_link(ScriptedLink::kDown, VendorError::peer_gone);
  EXPECT_LT(there.drive(), kEndOfTime);
  there.expire();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_gone}}));
}

}  // namespace
}  // namespace verbena
