// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a transport that obeys a script: SQD. Requests that have begun are finished,
// others are not begun, and the event comes once, at the end.
#include <gtest/gtest.h>

#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

TEST(RequesterDrain, IsOverAtOnceWithNothingInFlight) {
  ScriptedRequester there;
  ASSERT_EQ(there.drain(), 0);
  EXPECT_EQ(there.drained_events(), 1);
  EXPECT_FALSE(there.is_draining());
}

TEST(RequesterDrain, WaitsForAllThatIsInFlight) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  there.ack(1);
  EXPECT_TRUE(there.is_draining());
  there.respond(0);
  EXPECT_EQ(there.drained_events(), 0);
  EXPECT_TRUE(there.is_draining());
  there.ack(2);
  EXPECT_EQ(there.drained_events(), 1);
  EXPECT_FALSE(there.is_draining());
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1, 2}));
}

TEST(RequesterDrain, BeginsNothing) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.drive();
  there.ack(0);
  there.drive(true);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  EXPECT_EQ(there.drained_events(), 1);
  ASSERT_EQ(there.modify(IBV_QPS_RTS), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 2}));
}

TEST(RequesterDrain, AFencedRequestHasNotBegun) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  ASSERT_EQ(there.drain(), 0);
  there.respond(0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0}));
  EXPECT_EQ(there.drained_events(), 1);
}

TEST(RequesterDrain, RetriesWhatHasBegun) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.send(), 0);
  ASSERT_EQ(there.drain(), 0);
  ASSERT_EQ(there.send(), 0);
  there.rnr(0, 31);
  EXPECT_EQ(there.drained_events(), 0);
  there.retry();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 0, 1}));
  there.ack(1);
  EXPECT_EQ(there.drained_events(), 1);
  EXPECT_EQ(there.succeeded(), (WrIds{0, 1}));
}

TEST(RequesterDrain, FinishesAMessageThatIsHalfSent) {
  ScriptedRequester there;
  there.transport.set_link(ScriptedLink::kFull, VendorError::none, 1);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 2 * ScriptedTransport::kChunk), 0);
  ASSERT_EQ(there.drain(), 0);
  EXPECT_TRUE(there.is_draining());
  there.transport.set_link(ScriptedLink::kOpen);
  there.drive();
  there.ack(0);
  EXPECT_EQ(there.drained_events(), 1);
}

TEST(RequesterDrain, RaisesNoEventUnlessAskedTo) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(false), 0);
  there.ack(0);
  EXPECT_EQ(there.drained_events(), 0);
  EXPECT_FALSE(there.is_draining());
}

TEST(RequesterDrain, RaisesOneEventOnly) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  there.report(0, ScriptedReply::ack().twice());
  there.drive();
  EXPECT_EQ(there.drained_events(), 1);
}

// Nothing of it has left: it is as a request that was posted in SQD.
TEST(RequesterDrain, DoesNotWaitForARequestThatAFullTransportTurnedAway) {
  for (const bool with_event : {false, true}) {
    ScriptedRequester there;
    there.transport.set_link(ScriptedLink::kFull);
    ASSERT_EQ(there.write(), 0);
    ASSERT_EQ(there.drain(with_event), 0);
    EXPECT_FALSE(there.is_draining()) << with_event;
    EXPECT_EQ(there.drained_events(), with_event ? 1 : 0);
    there.expire();
    EXPECT_EQ(there.ended(), EndedRequests{}) << with_event;
    there.transport.set_link(ScriptedLink::kOpen);
    ASSERT_EQ(there.modify(IBV_QPS_RTS), 0);
    there.ack(0);
    EXPECT_EQ(there.succeeded(), (WrIds{0}));
  }
}

TEST(RequesterDrain, IsNotLeftForRtsBeforeItsEnd) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  EXPECT_EQ(there.modify(IBV_QPS_RTS), EINVAL);
  there.ack(0);
  EXPECT_EQ(there.modify(IBV_QPS_RTS), 0);
}

TEST(RequesterDrain, ATimeoutEndsInErrWithoutTheEvent) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  ASSERT_EQ(there.write(), 0);
  there.expire();
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::peer_silent}, EndedRequest::flushed(1)}));
  EXPECT_EQ(there.drained_events(), 0);
}

TEST(RequesterDrain, AConnectionThatBreaksLosesNothing) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  ASSERT_EQ(there.drain(), 0);
  ASSERT_EQ(there.write(), 0);
  there.transport.replace();
  there.drive();
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1, 0, 1}));
  there.ack(1);
  EXPECT_EQ(there.drained_events(), 1);
}

}  // namespace
}  // namespace verbena
