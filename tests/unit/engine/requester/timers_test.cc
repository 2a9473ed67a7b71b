// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/timers.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr uint64_t kMs = 1000 * 1000;

// The names of these codes in the kernel's enum ib_rnr_timeout (include/rdma/ib_verbs.h) give the time in
// units of 0.01 ms: IB_RNR_TIMER_000_64 is code 12.
constexpr uint32_t kHundredthsOfMs[32] = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

TEST(RnrTimer, MatchesThePublishedTable) {
  for (unsigned code = 0; code < 32; ++code)
    EXPECT_EQ(rnr_timer_ns(code), kHundredthsOfMs[code] * kMs / 100) << "code " << code;
}

TEST(RnrTimer, GrowsFromCodeOneOn) {
  for (unsigned code = 2; code < 32; ++code)
    EXPECT_GT(rnr_timer_ns(code), rnr_timer_ns(code - 1)) << "code " << code;
}

TEST(RnrTimer, CodeZeroIsTheLongest) {
  for (unsigned code = 1; code < 32; ++code)
    EXPECT_LT(rnr_timer_ns(code), rnr_timer_ns(0)) << "code " << code;
}

TEST(RnrTimer, OnlyFiveBitsCount) { EXPECT_EQ(rnr_timer_ns(0xe0 | 12), rnr_timer_ns(12)); }

TEST(AckTimeout, ZeroNeverEnds) { EXPECT_EQ(ack_timeout_ns(0), kNever); }

TEST(AckTimeout, IsFourMicrosecondsTimesAPowerOfTwo) {
  struct {
    uint8_t code;
    uint64_t ns;
  } const published[] = {{1, 8192},      {2, 16384},       {8, 1048576},
                         {14, 67108864}, {18, 1073741824}, {31, 8796093022208}};
  for (const auto& row : published) EXPECT_EQ(ack_timeout_ns(row.code), row.ns) << "code " << int{row.code};
}

TEST(AckTimeout, OnlyFiveBitsCount) { EXPECT_EQ(ack_timeout_ns(0x20 | 14), ack_timeout_ns(14)); }

TEST(RnrFailure, NoRetryFailsAtOnce) { EXPECT_EQ(rnr_failure_ns(0, 0), 0u); }

TEST(RnrFailure, WaitsOneTimerPerRetry) {
  for (unsigned retries = 1; retries < 7; ++retries)
    EXPECT_EQ(rnr_failure_ns(retries, 12), retries * 640000u) << retries << " retries";
}

TEST(RnrFailure, SevenRetriesAreForever) { EXPECT_EQ(rnr_failure_ns(7, 1), kNever); }

TEST(TransportFailure, WaitsOneTimeoutMoreThanRetries) {
  for (unsigned retries = 0; retries <= 7; ++retries)
    EXPECT_EQ(transport_failure_ns(14, retries), (retries + 1) * 67108864u) << retries << " retries";
}

TEST(TransportFailure, InfiniteTimeoutNeverFails) { EXPECT_EQ(transport_failure_ns(0, 0), kNever); }

TEST(TransportFailure, LongestDoesNotOverflow) { EXPECT_EQ(transport_failure_ns(31, 7), 8 * 8796093022208u); }

}  // namespace
}  // namespace verbena
