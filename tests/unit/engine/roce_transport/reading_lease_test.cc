// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/reading_lease.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr int64_t kNow = 77'000'000'000;

constexpr auto kAlive = [](uint32_t) { return true; };

struct ReadingLeaseOfTwo : testing::Test {
  std::atomic<uint64_t> holder{0}, poller{0};
  ReadingLease first{holder, poller, 0}, second{holder, poller, 1023};
};

TEST_F(ReadingLeaseOfTwo, OneAtATimeReads) {
  EXPECT_TRUE(first.acquire(kNow, kAlive));
  EXPECT_FALSE(second.acquire(kNow + 1000, kAlive));
  first.release();
  EXPECT_TRUE(second.acquire(kNow + 2000, kAlive));
}

TEST_F(ReadingLeaseOfTwo, AReaderThatIsStoppedIsReplaced) {
  EXPECT_TRUE(first.acquire(kNow, kAlive));
  EXPECT_TRUE(second.acquire(kNow + ReadingLease::kLength + 2048, kAlive));
  first.release();  // it goes on: the lease is not its own any more
  EXPECT_FALSE(first.acquire(kNow + ReadingLease::kLength + 4096, kAlive));
}

TEST_F(ReadingLeaseOfTwo, AReaderThatStandsStillIsNotReplacedSoon) {
  EXPECT_TRUE(first.acquire(kNow, kAlive));
  EXPECT_FALSE(second.acquire(kNow + ReadingLease::kLength - 2048, kAlive));
}

TEST_F(ReadingLeaseOfTwo, AReaderThatHasEndedIsReplacedSooner) {
  EXPECT_TRUE(second.acquire(kNow, kAlive));
  uint32_t asked = 0;
  const auto has_ended = [&](uint32_t slot) {
    asked = slot;
    return false;
  };
  EXPECT_FALSE(first.acquire(kNow + ReadingLease::kUnasked - 2048, has_ended));
  EXPECT_TRUE(first.acquire(kNow + ReadingLease::kUnasked + 2048, has_ended));
  EXPECT_EQ(asked, 1023u);
}

TEST_F(ReadingLeaseOfTwo, AProcessThatPollsReadsAlone) {
  first.note_poll(kNow);
  EXPECT_TRUE(second.others_poll(kNow + 1000));
  EXPECT_FALSE(first.others_poll(kNow + 1000));
  EXPECT_FALSE(second.others_poll(kNow + ReadingLease::kPolledLately + 2048));
}

TEST_F(ReadingLeaseOfTwo, DamagedWordsAreOld) {
  for (const uint64_t word : {~uint64_t{0}, uint64_t{1} << 48, uint64_t{5} << 48 | 0xffff'ffff'ffff}) {
    holder = poller = word;
    EXPECT_TRUE(first.acquire(kNow, kAlive)) << word;
    EXPECT_FALSE(first.others_poll(kNow)) << word;
  }
}

}  // namespace
}  // namespace verbena
