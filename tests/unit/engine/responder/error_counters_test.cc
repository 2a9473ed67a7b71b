// SPDX-License-Identifier: BSD-2-Clause
//
// What the port counts of errors (fabric/hw_counters.h), at once and exactly.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fabric/hw_counters.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

using Counts = std::map<std::string, uint64_t>;

// All that is not 0.
Counts counts(const Scene& scene) {
  Counts out;
  const auto& past = scene.node.directory().header().past_counters[port_place(0, 1)];
  for (size_t i = 0; i < kPastCounters; ++i)
    if (const uint64_t value = past[i].load(); value != 0) out[kHwCounterNames[i]] = value;
  return out;
}

constexpr QpSetup impatient() {
  QpSetup setup;
  setup.timeout = 1;
  setup.retry_cnt = 1;
  return setup;
}

TEST(ErrorCountersTest, AccessThatIsRefused) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(), memory.rkey() ^ 0x100), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(
      counts(pair),
      (Counts{{"req_cqe_error", 1}, {"req_remote_access_errors", 1}, {"resp_remote_access_errors", 1}}));
}

TEST(ErrorCountersTest, MessageThatIsTooLong) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 64)}), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_REM_INV_REQ_ERR);
  ASSERT_EQ(pair.b.received().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(counts(pair), (Counts{{"req_cqe_error", 1},
                                  {"req_remote_invalid_request", 1},
                                  {"resp_cqe_error", 1},
                                  {"resp_local_length_error", 1}}));
}

TEST(ErrorCountersTest, WhatIsFlushed) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(receive(*pair.a, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(counts(pair), (Counts{{"req_cqe_flush_error", 1}, {"resp_cqe_flush_error", 3}}));
}

TEST(ErrorCountersTest, RetriesThatAreOver) {
  Pair pair(impatient());
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(counts(pair), (Counts{{"req_cqe_error", 1}, {"retry_exceeded_err", 1}}));
}

TEST(ErrorCountersTest, ReceiverThatIsNotReady) {
  QpSetup setup;
  setup.rnr_retry = 0;
  Pair pair(setup);
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(pair.a.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(counts(pair), (Counts{{"req_cqe_error", 1}, {"retry_rnr_exceeded_err", 1}}));
}

// The requester begins with another PSN than the responder expects. Counted once, however often it is tried.
TEST(ErrorCountersTest, PsnThatIsNotExpected) {
  for (const auto& [psn, name] : {std::pair<uint32_t, const char*>{105, "out_of_seq_request"},
                                  {95, "duplicate_request"},
                                  {(100u - 1) & 0xffffff, "duplicate_request"}}) {
    QpSetup left = impatient(), right = impatient();
    left.sq_psn = psn;
    right.rq_psn = 100;
    Pair pair(left, right);
    Region memory(pair.pd.get(), 64);
    ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}), 0);
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
    ASSERT_EQ(pair.a.sent().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(counts(pair), (Counts{{"req_cqe_error", 1}, {"retry_exceeded_err", 1}, {name, 1}}));
    EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
  }
}

TEST(ErrorCountersTest, WhatSucceedsIsNoError) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(receive(*pair.b, {memory.sge(0, 8)}), 0);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(counts(pair), Counts());
}

}  // namespace
}  // namespace verbena
