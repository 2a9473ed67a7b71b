// SPDX-License-Identifier: BSD-2-Clause
//
// NAKs, RNR NAKs, timeouts and broken paths: what the requester sends again, how often, and how requests
// fail.
#include "engine/rules/vendor_error.h"
#include "unit/engine/requester/scripted_transport.h"

namespace verbena {
namespace {

using SentNumbers = std::vector<uint64_t>;
using Ends = ScriptedRequester::Ends;

// ---- NAKs ----

TEST(RequesterNak, EachReasonGivesItsStatusAndEndsTheQueuePair) {
  for (uint32_t code = 1; code <= 0xff; ++code) {
    const auto* text = find_vendor_error(code);
    if (text == nullptr || text->error == VendorError::none || text->status == IBV_WC_SUCCESS) continue;
    ScriptedRequester requester;
    for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(requester.post_send_request(i), 0);
    requester.nak(1, text->error);
    const std::vector<ibv_wc> all = requester.completed();
    ASSERT_EQ(all.size(), 3u) << text->name;
    EXPECT_EQ(all[0].status, IBV_WC_SUCCESS) << "a NAK acknowledges what came before";
    EXPECT_EQ(all[1].status, text->status) << text->name;
    EXPECT_EQ(all[1].vendor_err, code);
    EXPECT_EQ(all[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(qp_state(&requester.qp()), IBV_QPS_ERR);
    EXPECT_EQ(requester.transport.abandoned, 1);
  }
}

TEST(RequesterNak, WaitsForTheResponsesBeforeIt) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.nak(1, VendorError::remote_operation_failed);
  EXPECT_TRUE(requester.ends().empty());
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_REM_OP_ERR}}));
}

TEST(RequesterNak, OfARequestThatIsNotInFlightChangesNothing) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  requester.ack(1);
  ASSERT_EQ(requester.post_send_request(1), 0);
  for (const uint64_t number : {uint64_t{0}, uint64_t{2}, uint64_t{1000}, UINT64_MAX})
    requester.nak(number, VendorError::remote_operation_failed);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{1, IBV_WC_SUCCESS}}));
}

TEST(RequesterNak, AResponseThatCannotBePlacedFailsItsRequest) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  EXPECT_TRUE(requester.respond(0, VendorError::local_memory_gone));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_LOC_PROT_ERR}, {1, IBV_WC_WR_FLUSH_ERR}}));
}

TEST(RequesterNak, ATransportThatRefusesARequestFailsItAfterThoseBeforeIt) {
  ScriptedRequester requester;
  requester.transport.results = {{SendOutcome::kSent},
                                 {SendOutcome::kFailed, VendorError::lkey_unknown},
                                 {SendOutcome::kFailed, VendorError::lkey_unknown}};
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  EXPECT_TRUE(requester.ends().empty());
  requester.ack(1);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_LOC_PROT_ERR}}));
}

TEST(RequesterNak, AfterErrNothingIsSentAndAllIsFlushed) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  requester.nak(0, VendorError::remote_operation_failed);
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_REM_OP_ERR}, {1, IBV_WC_WR_FLUSH_ERR}}));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0}));
}

// ---- RNR ----

TEST(RequesterRnr, IsRetriedExactlyAsOftenAsRnrRetrySays) {
  for (const uint8_t retries : {0, 1, 3, 6}) {
    ScriptedRequester requester({.rnr_retry = retries});
    ASSERT_EQ(requester.post_send_request(5), 0);
    for (size_t i = 1; i <= retries; ++i) {
      requester.rnr(0);
      ASSERT_TRUE(requester.sends(i + 1)) << "retry " << i << " of " << int{retries};
      ASSERT_TRUE(requester.ends().empty());
    }
    requester.rnr(0);
    EXPECT_EQ(requester.ends(), (Ends{{5, IBV_WC_RNR_RETRY_EXC_ERR}})) << int{retries};
    EXPECT_EQ(requester.sent_numbers().size(), retries + 1u);
    EXPECT_EQ(requester.qp().shared->rnr_naks.load(), retries + 1u);
  }
}

TEST(RequesterRnr, SevenRetriesAreInfinite) {
  ScriptedRequester requester({.rnr_retry = 7});
  ASSERT_EQ(requester.post_send_request(5), 0);
  for (size_t i = 1; i <= 40; ++i) {
    requester.rnr(0);
    ASSERT_TRUE(requester.sends(i + 1));
  }
  requester.ack(1);
  EXPECT_EQ(requester.ends(), (Ends{{5, IBV_WC_SUCCESS}}));
}

TEST(RequesterRnr, GoesBackToTheRequestThatFoundNoReceiveWqe) {
  ScriptedRequester requester;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(requester.post_send_request(i), 0);
  requester.rnr(1);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
  ASSERT_TRUE(requester.sends(5));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2, 1, 2}));
  EXPECT_EQ(requester.transport.log[3].psn, requester.transport.log[1].psn);
  EXPECT_EQ(requester.transport.log[4].psn, requester.transport.log[2].psn);
}

TEST(RequesterRnr, ProgressBeginsTheCountAgain) {
  ScriptedRequester requester({.rnr_retry = 1});
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.rnr(0);
  ASSERT_TRUE(requester.sends(4));
  requester.ack(1);
  requester.rnr(1);
  ASSERT_TRUE(requester.sends(5));
  requester.ack(2);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_SUCCESS}}));
}

TEST(RequesterRnr, IsCountedForEachRequestByItself) {
  ScriptedRequester requester({.rnr_retry = 1});
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0), 0);  // nothing behind it completes
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.rnr(1);
  ASSERT_TRUE(requester.sends(3));
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.rnr(2);
  ASSERT_TRUE(requester.sends(5));
  EXPECT_TRUE(requester.ends().empty());
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 1, 2, 2}));
}

TEST(RequesterRnr, GoesBackBehindAReadInFlightWithItsPsn) {
  ScriptedRequester requester({.sq_psn = 500, .rq_psn = 500});
  ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, 0, 3000), 0);  // three packets of 1,024 bytes
  ASSERT_EQ(requester.post_send_request(1), 0);
  ASSERT_EQ(requester.post_send_request(2), 0);
  requester.rnr(1);
  ASSERT_TRUE(requester.sends(5));
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2, 1, 2}));
  EXPECT_EQ(requester.transport.log[3].psn, 503u);
  EXPECT_EQ(requester.transport.log[4].psn, 504u);
  EXPECT_TRUE(requester.respond(0));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
}

TEST(RequesterRnr, ReadyEndsTheWaitAndIsNoRetry) {
  ScriptedRequester requester({.rnr_retry = 1});
  ASSERT_EQ(requester.post_send_request(0), 0);
  for (size_t i = 1; i <= 3; ++i) {
    requester.rnr(0, 0);  // 655 ms
    {
      const auto lock = requester.locked();
      ready_to_receive(requester.qp(), 0);
    }
    EXPECT_EQ(requester.sent_numbers().size(), i + 1);
  }
  requester.ack(1);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
}

TEST(RequesterRnr, ReadyForAnotherRequestChangesNothing) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  requester.rnr(0, 0);
  const auto lock = requester.locked();
  ready_to_receive(requester.qp(), 1);
  EXPECT_EQ(requester.transport.log.size(), 1u);
}

TEST(RequesterRnr, OfARequestThatIsNotInFlightChangesNothing) {
  ScriptedRequester requester({.rnr_retry = 0});
  ASSERT_EQ(requester.post_send_request(0), 0);
  requester.rnr(1), requester.rnr(UINT64_MAX);
  requester.ack(1);
  requester.rnr(0);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
}

// ---- silence ----

TEST(RequesterTimeout, FailsTheFirstRequestAndFlushesTheOthers) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  requester.time_out();
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_RETRY_EXC_ERR}, {1, IBV_WC_WR_FLUSH_ERR}}));
}

TEST(RequesterTimeout, NeverComesBeforeItsTime) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  EXPECT_GE(requester.transport.watched, 1);
  const auto lock = requester.locked();
  const int64_t end = requester.qp().give_up_at;
  EXPECT_EQ(check_deadline(requester.qp(), end - 1), end);
  EXPECT_EQ(qp_state(&requester.qp()), IBV_QPS_RTS);
}

TEST(RequesterTimeout, ASoundPathGivesMoreTime) {
  ScriptedRequester requester;
  requester.transport.grace = 1000;
  ASSERT_EQ(requester.post_send_request(0), 0);
  {
    const auto lock = requester.locked();
    const int64_t end = requester.qp().give_up_at;
    EXPECT_EQ(check_deadline(requester.qp(), end), end + 1000);
    EXPECT_EQ(check_deadline(requester.qp(), end + 1000), kEndOfTime);
  }
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_RETRY_EXC_ERR}}));
}

TEST(RequesterTimeout, AnAnswerBeginsTheTimeAgain) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_EQ(requester.post_send_request(1), 0);
  const auto end_of = [&] {
    const auto lock = requester.locked();
    return requester.qp().give_up_at;
  };
  const int64_t before = end_of();
  requester.ack(1);
  EXPECT_GT(end_of(), before);
}

TEST(RequesterTimeout, WithoutAPathTheRequestFailsWithItsReason) {
  ScriptedRequester requester;
  requester.transport.decide = [](const SendRequest&) {
    return SendResult{SendOutcome::kUnreachable, VendorError::no_path};
  };
  ASSERT_EQ(requester.post_send_request(0), 0);
  ASSERT_TRUE(requester.sends(3)) << "it is tried again";
  requester.time_out();
  const std::vector<ibv_wc> all = requester.completed();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(all[0].vendor_err, static_cast<uint32_t>(VendorError::no_path));
}

// ---- paths that break ----

TEST(RequesterPath, WhatWasInFlightIsSentAgainOnTheNextOne) {
  ScriptedRequester requester;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(requester.post_send_request(i), 0);
  requester.ack(1);
  requester.replace_path();
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 2, 1, 2}));
  requester.ack(3);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}}));
}

TEST(RequesterPath, AReadIsSentAgainUnlessItsResponseWasThere) {
  ScriptedRequester requester;
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(requester.post_request(IBV_WR_RDMA_READ, i), 0);
  requester.replace_path();
  EXPECT_EQ(requester.sent_numbers(), (SentNumbers{0, 1, 0, 1}));
  EXPECT_TRUE(requester.respond(0));
  EXPECT_TRUE(requester.respond(1));
  EXPECT_FALSE(requester.respond(1));
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}, {1, IBV_WC_SUCCESS}}));
  EXPECT_EQ(requester.qp().flight.responses_awaited, 0u);
}

TEST(RequesterPath, AResponderThatIsNotReadyIsAskedAgain) {
  ScriptedRequester requester;
  ASSERT_EQ(requester.post_send_request(0), 0);
  requester.not_yet(0);
  ASSERT_TRUE(requester.sends(2));
  requester.not_yet(0);
  ASSERT_TRUE(requester.sends(3));
  requester.ack(1);
  EXPECT_EQ(requester.ends(), (Ends{{0, IBV_WC_SUCCESS}}));
  EXPECT_EQ(requester.qp().shared->retries.load(), 2u);
}

}  // namespace
}  // namespace verbena
