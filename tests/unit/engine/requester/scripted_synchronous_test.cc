// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a synchronous transport that obeys a script: what is carried out within the post,
// what waits, for how long, and what drives it meanwhile.
#include <gtest/gtest.h>

#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

constexpr uint8_t kLongRnrTimer = 0;  // min_rnr_timer: 655.36 ms
constexpr SendResult kRnrResult{SendOutcome::kRnr, VendorError::no_receive_posted, kLongRnrTimer};
constexpr ScriptedHow kInSharedMemory{.is_synchronous = true};

QpSetup rnr_retries(uint8_t retries) {
  QpSetup setup = ScriptedRequester::usual();
  setup.rnr_retry = retries;
  return setup;
}

// What is left of the wait is over.
void let_patience_end(ScriptedRequester& there) {
  there.pass(there.qp().give_up_at - now_ns());
  there.qp().try_again_at = 0;
}

TEST(SynchronousRequester, CarriesOutEachRequestWithinItsPost) {
  ScriptedRequester there(ScriptedRequester::usual(), kInSharedMemory);
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  ASSERT_EQ(there.read(0), 0);
  EXPECT_EQ(there.succeeded(), WrIds{});
  EXPECT_FALSE(there.is_scheduled());
  EXPECT_EQ(there.qp().sq_next, 2u);
}

TEST(SynchronousRequester, KeepsWhatIsPostedBehindARequestThatWaits) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(), 0);
  EXPECT_TRUE(there.is_scheduled());
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.transport.spare(0);
  there.retry();
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
  EXPECT_FALSE(there.is_scheduled());
}

TEST(SynchronousRequester, GivesUpAfterRnrRetryTimers) {
  ScriptedRequester there({}, kInSharedMemory);
  for (uint8_t retries = 1; retries < 7; ++retries) {
    there.begin_again(rnr_retries(retries));
    const uint64_t number = there.qp().sq_posted;
    there.transport.spoil(number, kRnrResult);
    expect_instant(there.qp().give_up_at, retries * rnr_timer_ns(kLongRnrTimer),
                   [&] { EXPECT_EQ(there.send(), 0); });
    there.retry();
    EXPECT_EQ(there.ended(), EndedRequests{});
    let_patience_end(there);
    there.drive();
    EXPECT_EQ(there.ended(), (EndedRequests{{number, VendorError::no_receive_posted}}));
    EXPECT_EQ(there.state(), IBV_QPS_ERR);
  }
}

TEST(SynchronousRequester, WithRnrRetry0FailsAtOnce) {
  ScriptedRequester there(rnr_retries(0), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::no_receive_posted}}));
}

TEST(SynchronousRequester, WithRnrRetry7NeverGivesUp) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.qp().give_up_at, kEndOfTime);
  for (int i = 0; i < 50; ++i) there.retry();
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
}

TEST(SynchronousRequester, PausesBeforeItLooksForAReceiveAgain) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  ASSERT_EQ(there.send(), 0);
  there.qp().try_again_at = now_ns() + 1'000'000'000;
  EXPECT_EQ(there.drive(), there.qp().try_again_at);
  EXPECT_EQ(there.transport.sends, 1u);
  there.drive(true);  // the service thread takes its time anyway
  EXPECT_EQ(there.transport.sends, 2u);
}

TEST(SynchronousRequester, AsksToBeWokenWhenTheProgramDoesNotPoll) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.takes_wakeups = true;
  there.transport.spoil(0, kRnrResult);
  ASSERT_EQ(there.send(), 0);
  there.retry();
  EXPECT_EQ(there.transport.asked_for_wakeup, 0);
  // The responder may have missed it once: the service thread comes soon, and after that seldom.
  const int64_t soon = there.drive(true);
  EXPECT_LE(soon, now_ns() + 200'000);
  EXPECT_EQ(there.transport.asked_for_wakeup, 1);
  const int64_t before = now_ns();
  EXPECT_GE(there.drive(true), before + 20'000'000);
  EXPECT_EQ(there.transport.asked_for_wakeup, 1);
}

TEST(SynchronousRequester, WaitsForASilentResponderAsLongAsItsTimeouts) {
  ScriptedRequester there(ScriptedRequester::usual(), kInSharedMemory);
  there.transport.set_link(ScriptedLink::kDown, VendorError::peer_mismatch);
  expect_instant(there.qp().give_up_at, 8 * ack_timeout_ns(ScriptedRequester::kTimeout),
                 [&] { EXPECT_EQ(there.write(), 0); });
  ASSERT_EQ(there.write(), 0);
  there.drive();
  EXPECT_EQ(there.ended(), EndedRequests{});
  EXPECT_EQ(there.qp().shared->retries.load(), 2u);
  let_patience_end(there);
  there.drive();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_mismatch}, EndedRequest::flushed(1)}));
}

TEST(SynchronousRequester, WaitsAtLeastAsLongAsTheTransportSays) {
  ScriptedRequester there(ScriptedRequester::usual(), kInSharedMemory);
  there.transport.set_link(ScriptedLink::kDown, VendorError::peer_gone);
  there.transport.at_least = 5'000'000'000;
  expect_instant(there.qp().give_up_at, 5'000'000'000, [&] { EXPECT_EQ(there.write(), 0); });
}

TEST(SynchronousRequester, WaitsASecondForTheLockOfAnAtomic) {
  ScriptedRequester there(ScriptedRequester::usual(), kInSharedMemory);
  there.transport.spoil(0, {SendOutcome::kBusy});
  expect_instant(there.qp().give_up_at, 1'000'000'000,
                 [&] { EXPECT_EQ(there.post(IBV_WR_ATOMIC_FETCH_AND_ADD), 0); });
  there.drive();
  EXPECT_EQ(there.ended(), EndedRequests{});
  let_patience_end(there);
  there.drive();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_silent}}));
}

TEST(SynchronousRequester, AnotherReasonToWaitBeginsAnotherWait) {
  ScriptedRequester there(rnr_retries(6), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  ASSERT_EQ(there.send(), 0);
  there.transport.spoil(0, {SendOutcome::kUnreachable, VendorError::peer_gone});
  expect_instant(there.qp().give_up_at, 8 * ack_timeout_ns(ScriptedRequester::kTimeout),
                 [&] { there.retry(); });
}

TEST(SynchronousRequester, MovesALongMessageChunkByChunk) {
  ScriptedRequester there(ScriptedRequester::usual(), kInSharedMemory);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 3 * ScriptedTransport::kChunk), 0);
  EXPECT_EQ(there.transport.sends, 1u);
  EXPECT_TRUE(there.is_scheduled());
  EXPECT_EQ(there.qp().give_up_at, kEndOfTime);
  for (uint64_t sends = 2; sends <= 3; ++sends) {
    EXPECT_EQ(there.ended(), EndedRequests{});
    there.drive();
    EXPECT_EQ(there.transport.sends, sends);
  }
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
}

TEST(SynchronousRequester, AFailureFlushesWhatWaitsBehind) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(0), 0);
  there.transport.spoil(0, {SendOutcome::kFailed, VendorError::rkey_unknown});
  there.retry();
  EXPECT_EQ(
      there.ended(),
      (EndedRequests{{0, VendorError::rkey_unknown}, EndedRequest::flushed(1), EndedRequest::flushed(2)}));
}

TEST(SynchronousRequester, ARequestThatWaitsHasBegunAndIsFinishedInSqd) {
  ScriptedRequester there(rnr_retries(7), kInSharedMemory);
  there.transport.spoil(0, kRnrResult);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.send(), 0);
  ASSERT_EQ(there.drain(), 0);
  EXPECT_TRUE(there.is_draining());
  there.transport.spare(0);
  there.retry();
  EXPECT_EQ(there.succeeded(), (WrIds{0}));
  EXPECT_EQ(there.drained_events(), 1);
  ASSERT_EQ(there.modify(IBV_QPS_RTS), 0);
  EXPECT_EQ(there.succeeded(), (WrIds{1}));
}

}  // namespace
}  // namespace verbena
