// SPDX-License-Identifier: BSD-2-Clause
//
// Receive queues with several requesters that are made larger while WQEs are posted and taken.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "adapter/shared_receive_ring.h"
#include "unit/adapter/shared_ring_of_own.h"

namespace verbena {
namespace {

std::vector<int64_t> take_all(SharedRingOfOwn& own) {
  std::vector<int64_t> taken;
  for (int64_t slot; (slot = own.take(1)) >= 0;) taken.push_back(slot);
  return taken;
}

TEST(GrownReceiveRing, HasTwiceAsManySlots) {
  SharedRingOfOwn own(2);
  own.grow();
  EXPECT_EQ(own.ring().slots(), 8u);
  own.grow();
  EXPECT_EQ(own.ring().slots(), 16u);
}

TEST(GrownReceiveRing, TakesWhatWasPostedBeforeFirst) {
  SharedRingOfOwn own(1);
  own.ring().post(1);
  own.ring().post(0);
  own.grow();
  own.ring().post(3);
  own.grow();
  for (uint32_t slot : {7, 2, 4}) own.ring().post(slot);
  EXPECT_EQ(own.ring().posted(), 6u);
  EXPECT_EQ(take_all(own), (std::vector<int64_t>{1, 0, 3, 7, 2, 4}));
}

TEST(GrownReceiveRing, IsSeenThroughAHandleFromBefore) {
  SharedRingOfOwn own(1);
  const SharedReceiveRing old = own.ring();
  own.grow();
  own.ring().post(3);
  uint32_t slot = 0;
  ASSERT_TRUE(old.take(1, &slot));
  EXPECT_EQ(slot, 3u);
  EXPECT_EQ(&old.wqe(3), &own.ring().wqe(3));
  EXPECT_EQ(old.bounce(3), own.ring().bounce(3));
}

TEST(GrownReceiveRing, HasAPlaceOfItsOwnForEachSlot) {
  SharedRingOfOwn own(1);
  own.grow();
  own.grow();
  const SharedReceiveRing ring = own.ring();
  for (uint32_t a = 0; a < 8; ++a)
    for (uint32_t b = 0; b < a; ++b) {
      const auto* first = reinterpret_cast<const std::byte*>(&ring.wqe(a));
      const auto* second = reinterpret_cast<const std::byte*>(&ring.wqe(b));
      EXPECT_GE(first > second ? first - second : second - first, ptrdiff_t{ring.stride}) << a << ", " << b;
      EXPECT_GE(std::abs(ring.bounce(a) - ring.bounce(b)), ptrdiff_t{kBounceSize}) << a << ", " << b;
    }
}

TEST(GrownReceiveRing, GrowsInTheMiddleOfALap) {
  SharedRingOfOwn own(2);
  for (uint32_t i = 0; i < 11; ++i) {
    own.ring().post(i & 3);
    ASSERT_EQ(own.take(1), int64_t{i & 3});
  }
  own.ring().post(2);
  own.grow();
  own.ring().post(6);
  EXPECT_EQ(take_all(own), (std::vector<int64_t>{2, 6}));
  for (uint32_t i = 0; i < 40; ++i) {
    own.ring().post(i & 7);
    ASSERT_EQ(own.take(1), int64_t{i & 7});
  }
}

TEST(GrownReceiveRing, FindsTheOldestFromAHeadThatLagsBehindInAnOlderRing) {
  SharedRingOfOwn own(1);
  for (uint32_t i = 0; i < 9; ++i) {
    own.ring().post(i & 1);
    own.take(1);
  }
  own.grow();
  own.ring().post(3);
  own.shared.head.store(2);
  EXPECT_EQ(own.take(1), 3);
}

TEST(GrownReceiveRing, DisarmsTheLimitByTheCountInAllRings) {
  SharedRingOfOwn own(1);
  own.ring().post(0);
  own.grow();
  own.ring().post(2);
  own.ring().post(3);
  own.shared.limit.store(2);
  uint32_t slot;
  bool reached = true;
  ASSERT_TRUE(own.ring().take(1, &slot, &reached));
  EXPECT_FALSE(reached);
  ASSERT_TRUE(own.ring().take(1, &slot, &reached));
  EXPECT_TRUE(reached);
}

// One thread posts and grows the queue, others take: each WQE once, in the order of posting for each taker,
// and none is ever out of sight.
TEST(GrownReceiveRingThreads, LoseNothingAndTakeInOrder) {
  for (int round = 0; round < 20; ++round) {
    SharedRingOfOwn own(1);
    const SharedReceiveRing ring = own.ring();
    constexpr uint32_t kSlots = 256;
    std::vector<std::atomic<uint32_t>> number_of(kSlots);  // of what is posted in the slot, in order
    std::vector<std::atomic<bool>> used(kSlots);
    constexpr uint32_t kEach = 4000;
    std::atomic<uint32_t> taken{0};
    std::atomic<bool> failed{false};
    std::vector<std::jthread> takers;
    for (uint32_t t = 1; t <= 2; ++t)
      takers.emplace_back([&, t] {
        uint32_t last = 0, slot;
        while (taken.load() < kEach && !failed.load()) {
          if (!ring.take(t, &slot)) {
            sched_yield();
            continue;
          }
          const uint32_t number = number_of[slot].load();
          if (number <= last) failed = true;
          last = number;
          used[slot].store(false);
          taken += 1;
        }
      });
    uint32_t grown = 0;
    for (uint32_t number = 1; number <= kEach && !failed.load();) {
      const auto slots = static_cast<uint32_t>(ring.slots());
      for (uint32_t slot = 0; slot < slots && number <= kEach; ++slot) {
        if (used[slot].load()) continue;
        number_of[slot].store(number);
        used[slot].store(true);
        ring.post(slot);
        number += 1;
      }
      if (number > (grown + 1) * 300 && ring.slots() < kSlots) {
        own.grow();
        grown += 1;
      }
      if (slots < 4) sched_yield();
    }
    takers.clear();
    ASSERT_FALSE(failed) << "round " << round;
    ASSERT_EQ(taken, kEach);
    ASSERT_EQ(ring.slots(), kSlots);
  }
}

// ---- growths from untrusted memory ----

struct HostileGrowth {
  const char* name;
  void (*damage)(SharedRingOfOwn&);
};

class HostileGrowths : public ::testing::TestWithParam<HostileGrowth> {};

// What is damaged leads to some place of the queue, never out of the segment.
TEST_P(HostileGrowths, StayWithinTheSegment) {
  SharedRingOfOwn own(2);
  own.grow();
  own.ring().post(6);
  const SharedReceiveRing ring = own.ring();
  GetParam().damage(own);
  uint32_t slot, length;
  ring.take(1, &slot);
  ring.peek(&length);
  ring.posted();
  for (uint32_t i = 0; i < ring.slots(); ++i) {
    ring.wqe(i).length = 1;
    *ring.bounce(i) = std::byte{1};
  }
}

constexpr uint64_t kGrownSize = SharedRingOfOwn::kSize;
constexpr HostileGrowth kHostileGrowths[] = {
    {"TableOverTheEnd", [](SharedRingOfOwn& own) { own.shared.growth_offset = kGrownSize - 32; }},
    {"TableMisaligned", [](SharedRingOfOwn& own) { own.shared.growth_offset += 1; }},
    {"NoTable", [](SharedRingOfOwn& own) { own.shared.growth_offset = 0; }},
    {"TooManyGrowths", [](SharedRingOfOwn& own) { own.shared.growths.store(23); }},
    {"WordsOverTheEnd", [](SharedRingOfOwn& own) { own.growth(0).order_offset = kGrownSize - 8; }},
    {"WqesOverTheEnd", [](SharedRingOfOwn& own) { own.growth(0).wqe_offset = kGrownSize - 64; }},
    {"WqesMisaligned", [](SharedRingOfOwn& own) { own.growth(0).wqe_offset += 1; }},
    {"BounceBuffersOverTheEnd", [](SharedRingOfOwn& own) { own.growth(0).bounce_offset = kGrownSize - 8; }},
    {"StartThatNeverComes", [](SharedRingOfOwn& own) { own.growth(0).start = UINT64_MAX; }},
};
INSTANTIATE_TEST_SUITE_P(Each, HostileGrowths, ::testing::ValuesIn(kHostileGrowths),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace verbena
