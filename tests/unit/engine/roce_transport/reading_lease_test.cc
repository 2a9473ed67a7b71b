// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/reading_lease.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr int64_t kNow = 77'000'000'000;

struct ReadingLeaseOfTwo : testing::Test {
  std::atomic<uint64_t> holder{0}, poller{0};
  ReadingLease first{holder, poller, 0}, second{holder, poller, 1023};
};

TEST_F(ReadingLeaseOfTwo, OneAtATimeReads) {
  EXPECT_TRUE(first.acquire(kNow));
  EXPECT_FALSE(second.acquire(kNow + 1000));
  first.release();
  EXPECT_TRUE(second.acquire(kNow + 2000));
}

TEST_F(ReadingLeaseOfTwo, AReaderThatIsStoppedIsReplaced) {
  EXPECT_TRUE(first.acquire(kNow));
  EXPECT_TRUE(second.acquire(kNow + ReadingLease::kLength + 2048));
  first.release();  // it goes on: the lease is not its own any more
  EXPECT_FALSE(first.acquire(kNow + ReadingLease::kLength + 4096));
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
    EXPECT_TRUE(first.acquire(kNow)) << word;
    EXPECT_FALSE(first.others_poll(kNow)) << word;
  }
}

}  // namespace
}  // namespace verbena
