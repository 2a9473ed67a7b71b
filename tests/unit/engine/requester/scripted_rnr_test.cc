// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a transport that obeys a script: RNR NAKs. How often a request is tried, and when
// it is tried again. Instants are compared with the clock before and after the call that set them.
#include <gtest/gtest.h>

#include "engine/objects/flight.h"
#include "engine/objects/send_request.h"
#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

constexpr uint8_t kRnrTimer = 14;  // min_rnr_timer: 1.28 ms

QpSetup rnr_tries(uint8_t rnr_retry) {
  QpSetup setup = ScriptedRequester::usual();
  setup.rnr_retry = rnr_retry;
  return setup;
}
// A timeout of 8 us without retries, and RNR retries for ever.
QpSetup short_timeout() {
  QpSetup setup = rnr_tries(7);
  setup.timeout = 1;
  setup.retry_cnt = 0;
  return setup;
}

TEST(RequesterRnr, WaitsForTheTimerOfTheNak) {
  ScriptedRequester there;
  for (const uint8_t timer : {uint8_t{0}, uint8_t{1}, kRnrTimer, uint8_t{31}}) {
    there.begin_again(rnr_tries(7));
    const uint64_t number = there.qp().sq_posted;
    ASSERT_EQ(there.send(), 0);
    expect_instant(there.qp().try_again_at, rnr_timer_ns(timer), [&] { there.rnr(number, timer); });
    EXPECT_TRUE(there.is_scheduled());
    there.pass(static_cast<int64_t>(rnr_timer_ns(timer)) - 1'000'000'000);  // a second is left
    EXPECT_EQ(there.drive(), there.qp().try_again_at);
    EXPECT_EQ(there.transport.numbers_sent(), (WrIds{number}));
    there.pass(1'000'000'000);
    there.drive();
    EXPECT_EQ(there.transport.numbers_sent(), (WrIds{number, number}));
  }
}

TEST(RequesterRnr, IsRetriedRnrRetryTimesAndNoMore) {
  ScriptedRequester there;
  for (uint8_t retries = 0; retries < 7; ++retries) {
    there.begin_again(rnr_tries(retries));
    const uint64_t number = there.qp().sq_posted;
    ASSERT_EQ(there.send(), 0);
    for (int i = 0; i < retries; ++i) {
      there.rnr(number);
      EXPECT_EQ(there.state(), IBV_QPS_RTS);
      there.retry();
      EXPECT_EQ(there.transport.sent.size(), i + 2u);
    }
    EXPECT_EQ(there.ended(), EndedRequests{});
    there.rnr(number);
    EXPECT_EQ(there.ended(), (EndedRequests{{number, VendorError::no_receive_posted}})) << int{retries};
    EXPECT_EQ(there.state(), IBV_QPS_ERR);
  }
}

TEST(RequesterRnr, SevenRetriesAreForever) {
  ScriptedRequester there(rnr_tries(7));
  ASSERT_EQ(there.send(), 0);
  for (int i = 0; i < 100; ++i) {
    there.rnr(0);
    there.expire();
    there.retry();
  }
  there.ack(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  EXPECT_EQ(there.qp().shared->rnr_naks.load(), 100u);
}

TEST(RequesterRnr, ANakThatIsRepeatedIsOneRetry) {
  ScriptedRequester there(rnr_tries(1));
  ASSERT_EQ(there.send(), 0);
  there.report(0, ScriptedReply::rnr(kRnrTimer).twice());
  EXPECT_EQ(there.ended(), EndedRequests{});
  EXPECT_EQ(there.qp().flight.rnr_tries, 1u);
}

TEST(RequesterRnr, ProgressBeginsTheRetriesAgain) {
  ScriptedRequester there(rnr_tries(1));
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.send(), 0);
  there.rnr(1);
  there.retry();
  there.respond(0);
  there.rnr(1);
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
  there.retry();
  there.rnr(1);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, VendorError::no_receive_posted}}));
}

TEST(RequesterRnr, PsnsGoOnBehindTheReadThatIsInFlight) {
  ScriptedRequester there;
  ASSERT_EQ(there.post(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 3000), 0);  // three packets
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.send(), 0);
  there.rnr(2);
  there.retry();
  EXPECT_EQ(there.transport.sent, (SentRequests{{0, 0}, {1, 3}, {2, 4}, {2, 4}}));
}

TEST(RequesterRnr, EachRequestHasItsOwnRetries) {
  ScriptedRequester there(rnr_tries(2));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(), 0);
  for (uint64_t number = 0; number < 3; ++number) {
    for (int i = 0; i < 2; ++i) {
      there.rnr(number);
      there.retry();
    }
    there.ack(number);
    EXPECT_EQ(there.succeeded(), (WrIds{number}));
  }
}

TEST(RequesterRnr, WhatWasSentBehindIsSentAgainWithItsPsn) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 2048), 0);
  ASSERT_EQ(there.read(), 0);
  there.transport.sent.clear();
  there.rnr(1, kRnrTimer);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  EXPECT_EQ(there.qp().flight.responses_awaited, 0u);
  there.retry();
  EXPECT_EQ(there.transport.sent, (SentRequests{{1, 2}, {2, 4}}));
  there.respond(2);
  EXPECT_EQ(there.succeeded(), (WrIds{1, 2}));
}

TEST(RequesterRnr, AReplyToTheFirstSendingAfterTheNakIsIgnored) {
  ScriptedRequester there;
  ASSERT_EQ(there.send(), 0);
  ASSERT_EQ(there.read(), 0);
  there.rnr(0);
  there.hold_retries();
  there.ack(0);
  there.respond(1);
  EXPECT_EQ(there.succeeded(), WrIds{});
  EXPECT_EQ(there.qp().waiting, Waiting::kReceive);
}

TEST(RequesterRnr, NothingNewIsSentWhileItWaits) {
  ScriptedRequester there;
  ASSERT_EQ(there.send(), 0);
  there.rnr(0, kRnrTimer);
  ASSERT_EQ(there.send(), 0);
  ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  there.retry();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 0, 1, 2}));
}

TEST(RequesterRnr, AWakeupIsNoRetry) {
  ScriptedRequester there(rnr_tries(1));
  ASSERT_EQ(there.send(), 0);
  for (int i = 0; i < 5; ++i) {
    there.rnr(0, 31);
    there.report(0, ScriptedReply::ready());
    EXPECT_EQ(there.transport.sent.size(), i + 2u);
  }
  there.rnr(0);
  there.retry();
  there.rnr(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::no_receive_posted}}));
}

TEST(RequesterRnr, AWakeupOfAnotherRequestChangesNothing) {
  ScriptedRequester there(rnr_tries(1));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.send(), 0);
  there.rnr(0, 31);
  there.report(1, ScriptedReply::ready());
  EXPECT_EQ(there.transport.sent.size(), 2u);
  EXPECT_EQ(there.qp().flight.rnr_tries, 1u);
}

// The responder waits for the program there, not the requester for the responder.
TEST(RequesterRnr, NoTimeoutRunsMeanwhile) {
  ScriptedRequester there(short_timeout());
  ASSERT_EQ(there.send(), 0);
  there.rnr(0, 0);
  EXPECT_EQ(there.qp().give_up_at, kEndOfTime);
  there.expire();
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
}

TEST(RequesterRnr, GoesOnWhenTheReadBeforeItIsFinished) {
  ScriptedRequester there(short_timeout());
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.send(), 0);
  there.rnr(1);
  there.hold_retries();
  there.respond(0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  EXPECT_EQ(there.qp().waiting, Waiting::kReceive);
  there.expire();
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.report(1, ScriptedReply::ready());
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 1}));
}

}  // namespace
}  // namespace verbena
