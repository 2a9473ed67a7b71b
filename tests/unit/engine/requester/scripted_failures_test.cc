// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with a transport that obeys a script: what each refusal makes of a request, of the
// requests around it and of the queue pair.
#include <gtest/gtest.h>

#include "unit/engine/requester/scripted_requester.h"

namespace verbena {
namespace {

constexpr VendorError kRefusal = VendorError::rkey_out_of_range;

// All errors that a reply or a transport may give as the reason.
std::vector<VendorError> all_vendor_errors() {
  std::vector<VendorError> all;
  for (uint32_t number = 1; number < 256; ++number)
    if (const VendorErrorText* text = find_vendor_error(number); text->error != VendorError::none)
      all.push_back(text->error);
  return all;
}

// ---- refused by the responder ---------------------------------------------------------------------------

TEST(RequesterFailure, EachNakHasItsStatusAndVendorErr) {
  ASSERT_GE(all_vendor_errors().size(), 35u);
  ScriptedRequester there;
  for (const VendorError error : all_vendor_errors()) {
    there.begin_again(ScriptedRequester::usual());
    const uint64_t first = there.qp().sq_posted;
    ASSERT_EQ(there.write(), 0);
    there.nak(first, error);
    EXPECT_EQ(there.ended(), (EndedRequests{{first, error}}));
    EXPECT_EQ(there.state(), IBV_QPS_ERR);
    EXPECT_EQ(there.check_at(kEndOfTime - 1), kEndOfTime);
  }
}

TEST(RequesterFailure, ANakAtOnceFailsTheRequestWithinThePost) {
  ScriptedRequester there;
  there.transport.reply(0, ScriptedReply::nak(kRefusal));
  ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, kRefusal}}));
}

TEST(RequesterFailure, ANakAcknowledgesAllBeforeItAndFlushesAllBehind) {
  ScriptedRequester there;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(there.write(), 0);
  there.nak(2, kRefusal);
  EXPECT_EQ(there.ended(),
            (EndedRequests{{0}, {1}, {2, kRefusal}, EndedRequest::flushed(3), EndedRequest::flushed(4)}));
  EXPECT_EQ(there.state(), IBV_QPS_ERR);
  EXPECT_EQ(there.transport.abandoned, 1);
}

TEST(RequesterFailure, FailedAndFlushedRequestsCompleteSignaledOrNot) {
  ScriptedRequester there;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(there.write(0), 0);
  there.nak(1, kRefusal);
  EXPECT_EQ(there.ended(),
            (EndedRequests{{1, kRefusal}, EndedRequest::flushed(2), EndedRequest::flushed(3)}));
}

TEST(RequesterFailure, ANakWaitsForTheReadBeforeIt) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.nak(1, kRefusal);
  EXPECT_EQ(there.ended(), EndedRequests{});
  EXPECT_EQ(there.state(), IBV_QPS_RTS);
  there.respond(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, kRefusal}, EndedRequest::flushed(2)}));
}

TEST(RequesterFailure, ARefusedRequestIsNotCompletedByAReplyThatFollows) {
  const ScriptedReply replies[] = {
      ScriptedReply::ack(), ScriptedReply::nak(VendorError::remote_operation_failed),
      ScriptedReply::response(), ScriptedReply::response(VendorError::lkey_unknown)};
  for (const ScriptedReply& later : replies) {
    ScriptedRequester there;
    ASSERT_EQ(there.read(), 0);
    ASSERT_EQ(there.write(), 0);
    ASSERT_EQ(there.read(), 0);
    there.nak(1, kRefusal);
    there.report(2, later);
    EXPECT_EQ(there.ended(), EndedRequests{});
    there.respond(0);
    EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, kRefusal}, EndedRequest::flushed(2)}));
  }
}

TEST(RequesterFailure, ARefusedReadIsNotCompletedByItsResponse) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.read(), 0);
  there.nak(1, kRefusal);
  there.respond(1);
  there.respond(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, kRefusal}}));
}

TEST(RequesterFailure, OfTwoRefusalsTheEarlierRequestFails) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.nak(2, VendorError::remote_operation_failed);
  there.nak(1, kRefusal);
  there.respond(0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, kRefusal}, EndedRequest::flushed(2)}));
}

TEST(RequesterFailure, ANakOfAMessageThatIsHalfSentFailsIt) {
  ScriptedRequester there;
  there.transport.set_link(ScriptedLink::kFull, VendorError::none, 1);
  ASSERT_EQ(there.write(IBV_SEND_SIGNALED, 2 * ScriptedTransport::kChunk), 0);
  there.nak(0, kRefusal);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, kRefusal}}));
}

TEST(RequesterFailure, RepliesToAQueuePairInErrChangeNothing) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  there.report(0, ScriptedReply::nak(kRefusal).twice());
  there.ack(1);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, kRefusal}, EndedRequest::flushed(1)}));
}

TEST(RequesterFailure, RequestsPostedInErrAreFlushedAndNotSent) {
  ScriptedRequester there;
  ASSERT_EQ(there.write(), 0);
  there.nak(0, kRefusal);
  ASSERT_EQ(there.write(0), 0);
  ASSERT_EQ(there.read(), 0);
  EXPECT_EQ(there.ended(),
            (EndedRequests{{0, kRefusal}, EndedRequest::flushed(1), EndedRequest::flushed(2)}));
  EXPECT_EQ(there.transport.sends, 1u);
}

TEST(RequesterFailure, ModifyToErrFlushesWhatIsInFlightInOrder) {
  ScriptedRequester there;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.read(0), 0);
  there.respond(2);
  ASSERT_EQ(there.modify(IBV_QPS_ERR), 0);
  EXPECT_EQ(there.ended(),
            (EndedRequests{EndedRequest::flushed(0), EndedRequest::flushed(1), EndedRequest::flushed(2)}));
}

TEST(RequesterFailure, AfterResetTheRequesterWorksAgain) {
  ScriptedRequester there;
  ASSERT_EQ(there.read(), 0);
  ASSERT_EQ(there.write(), 0);
  there.nak(1, kRefusal);  // waits for the READ
  there.begin_again(ScriptedRequester::usual());
  ASSERT_EQ(there.write(), 0);
  there.ack(1);  // of the connection before
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.ack(2);
  EXPECT_EQ(there.ended(), (EndedRequests{{2}}));
}

// ---- wrong at the requester itself
// -------------------------------------------------------------------------

TEST(RequesterFailure, EachLocalErrorHasItsStatusAndVendorErr) {
  ScriptedRequester there;
  for (const VendorError error : all_vendor_errors()) {
    there.begin_again(ScriptedRequester::usual());
    const uint64_t first = there.qp().sq_posted;
    there.transport.spoil(first, {SendOutcome::kFailed, error});
    ASSERT_EQ(there.write(), 0);
    EXPECT_EQ(there.ended(), (EndedRequests{{first, error}}));
    EXPECT_EQ(there.state(), IBV_QPS_ERR);
  }
}

TEST(RequesterFailure, ALocalErrorWaitsForAllBeforeIt) {
  ScriptedRequester there;
  there.transport.spoil(2, {SendOutcome::kFailed, VendorError::lkey_unknown});
  ASSERT_EQ(there.read(), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.write(), 0);
  EXPECT_EQ(there.transport.numbers_sent(), (WrIds{0, 1}));
  there.ack(1);
  EXPECT_EQ(there.ended(), EndedRequests{});
  there.respond(0);
  EXPECT_EQ(there.ended(),
            (EndedRequests{{0}, {1}, {2, VendorError::lkey_unknown}, EndedRequest::flushed(3)}));
}

TEST(RequesterFailure, AResponseThatHasNoPlaceFailsTheRead) {
  ScriptedRequester there;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.write(), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(there.read(), 0);
  there.report(2, ScriptedReply::response(VendorError::lkey_no_local_write));
  EXPECT_EQ(there.ended(),
            (EndedRequests{{0}, {1}, {2, VendorError::lkey_no_local_write}, EndedRequest::flushed(3)}));
}

TEST(RequesterFailure, AnAtomicOfOtherThan8BytesIsNotSent) {
  ScriptedRequester there;
  ASSERT_EQ(there.post(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED, 16), 0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0, VendorError::atomic_not_8_bytes}}));
  EXPECT_EQ(there.transport.sends, 0u);
}

// ---- unacknowledged
// -----------------------------------------------------------------------------------------

// vol. 1, 10.3.1.6: the send queue of an unreliable queue pair fails alone.
TEST(RequesterFailure, AnUnreliableConnectionGoesToSqe) {
  ScriptedRequester there({}, {.type = IBV_QPT_UC, .is_synchronous = true});
  there.transport.spoil(1, {SendOutcome::kFailed, VendorError::lkey_unknown});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.ended(), (EndedRequests{{0}, {1, VendorError::lkey_unknown}, EndedRequest::flushed(2)}));
  EXPECT_EQ(there.state(), IBV_QPS_SQE);
  EXPECT_EQ(there.transport.abandoned, 0);
  ASSERT_EQ(there.modify(IBV_QPS_RTS), 0);
  ASSERT_EQ(there.send(), 0);
  EXPECT_EQ(there.ended(), (EndedRequests{{3}}));
}

}  // namespace
}  // namespace verbena
