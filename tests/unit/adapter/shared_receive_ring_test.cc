// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/shared_receive_ring.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "unit/adapter/shared_ring_of_own.h"

namespace verbena {
namespace {

TEST(SharedReceiveRing, OfSoundOffsetsStands) {
  SharedRingOfOwn own(3);
  EXPECT_NE(own.ring().order_entries, nullptr);
}

TEST(SharedReceiveRing, FreshMemoryHasNoReceive) {
  SharedRingOfOwn own(3);
  EXPECT_EQ(own.take(1), -1);
}

TEST(SharedReceiveRing, IsTakenInTheOrderOfPosting) {
  SharedRingOfOwn own(3);
  for (uint32_t slot : {5, 0, 7, 3}) own.ring().post(slot);
  std::vector<int64_t> taken;
  for (int64_t slot; (slot = own.take(1)) >= 0;) taken.push_back(slot);
  EXPECT_EQ(taken, (std::vector<int64_t>{5, 0, 7, 3}));
}

TEST(SharedReceiveRing, NamesTheTaker) {
  SharedRingOfOwn own(3);
  own.ring().post(6);
  own.take(0xabcdef);
  const OrderWord word = OrderWord::unpack(own.ring().place(0).word().load());
  EXPECT_TRUE(word.taken);
  EXPECT_EQ(word.slot, 6u);
  EXPECT_EQ(word.worker, 0xabcdefu);
}

TEST(SharedReceiveRing, GoesRoundForMoreLapsThanAWordCounts) {
  SharedRingOfOwn own(1);
  for (uint32_t i = 0; i < 3 * (OrderWord::kLapMask + 1); ++i) {
    own.ring().post(i & 1);
    ASSERT_EQ(own.take(1), int64_t{i & 1}) << i;
    ASSERT_EQ(own.take(1), -1) << i;
  }
}

// A process stopped between taking a slot and moving the head leaves the head behind.
TEST(SharedReceiveRing, FindsTheOldestFromAHeadThatLagsWholeLapsBehind) {
  SharedRingOfOwn own(2);
  for (uint32_t i = 0; i < 23; ++i) {
    own.ring().post(i & 3);
    own.take(1);
  }
  own.ring().post(2);
  own.ring().post(1);
  own.shared.head.store(1);
  EXPECT_EQ(own.take(1), 2);
}

TEST(SharedReceiveRing, CountsWhatNobodyHasTaken) {
  SharedRingOfOwn own(3);
  for (uint32_t slot = 0; slot < 5; ++slot) own.ring().post(slot);
  own.take(1);
  own.shared.head.store(0);
  EXPECT_EQ(own.ring().posted(), 4u);
}

TEST(SharedReceiveRing, TellsTheTakerThatLeavesFewerThanTheLimit) {
  SharedRingOfOwn own(3);
  for (uint32_t slot = 0; slot < 4; ++slot) own.ring().post(slot);
  own.shared.limit.store(3);
  uint32_t slot;
  bool reached = true;
  ASSERT_TRUE(own.ring().take(1, &slot, &reached));
  EXPECT_FALSE(reached);
  ASSERT_TRUE(own.ring().take(1, &slot, &reached));
  EXPECT_TRUE(reached);
}

TEST(SharedReceiveRing, DisarmsTheLimitWhenItIsReached) {
  SharedRingOfOwn own(3);
  own.ring().post(0);
  own.shared.limit.store(1);
  own.take(1);
  EXPECT_EQ(own.shared.limit.load(), 0u);
}

TEST(SharedReceiveRing, DoesNotTakeASlotThatDoesNotExist) {
  SharedRingOfOwn own(2);
  own.ring().place(0).word().store(OrderWord{1, false, 4, 0}.pack());
  EXPECT_EQ(own.take(1), -1);
}

TEST(SharedReceiveRing, EndsItsSearchInADamagedRing) {
  SharedRingOfOwn own(2);
  for (uint64_t i = 0; i < own.ring().place(0).size(); ++i)
    own.ring().place(i).word().store(OrderWord{0x3fff, true, 0, 1}.pack());
  EXPECT_EQ(own.take(1), -1);
}

// ---- several threads ----

bool is_in_time(std::chrono::steady_clock::time_point began) {
  return std::chrono::steady_clock::now() - began < std::chrono::seconds(30);
}

TEST(SharedReceiveRingThreads, GivesEachRequestToOneTaker) {
  constexpr uint32_t kTakers = 4, kEach = 40000;
  SharedRingOfOwn own(4);
  const SharedReceiveRing ring = own.ring();
  std::vector<std::atomic<uint32_t>> owners(ring.slots());  // 0: the poster's
  std::atomic<bool> doubled{false}, stop{false};
  std::atomic<uint32_t> count{0};
  const auto began = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> takers;
    for (uint32_t t = 1; t <= kTakers; ++t)
      takers.emplace_back([&, t] {
        while (!stop) {
          uint32_t slot;
          if (!ring.take(t, &slot)) {
            sched_yield();
            continue;
          }
          if (owners[slot].exchange(0) != 0xffff) doubled = true;
          ++count;
        }
      });
    for (uint32_t posted = 0; posted < kEach && is_in_time(began);) {
      const uint32_t slot = posted & 15;
      uint32_t expected = 0;
      if (!owners[slot].compare_exchange_strong(expected, 0xffff)) {
        sched_yield();
        continue;
      }
      ring.post(slot);
      ++posted;
    }
    while (count != kEach && is_in_time(began)) sched_yield();
    stop = true;
  }
  EXPECT_FALSE(doubled);
  EXPECT_EQ(count, kEach);
}

TEST(SharedReceiveRingThreads, TellsOneTakerOfTheLimit) {
  constexpr uint32_t kRounds = 300;
  SharedRingOfOwn own(5);
  const SharedReceiveRing ring = own.ring();
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t slot = 0; slot < 32; ++slot) ring.post(slot);
    own.shared.limit.store(8);
    std::atomic<uint32_t> told{0};
    {
      std::vector<std::jthread> takers;
      for (uint32_t t = 1; t <= 3; ++t)
        takers.emplace_back([&, t] {
          uint32_t slot;
          for (bool reached; ring.take(t, &slot, &reached);) told += reached;
        });
    }
    ASSERT_EQ(told, 1u) << "round " << round;
  }
}

// ---- offsets from untrusted memory ----

struct Hostile {
  const char* name;
  void (*damage)(SharedSrq&);
};

class HostileSharedRing : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileSharedRing, IsRefused) {
  SharedRingOfOwn own(3);
  GetParam().damage(own.shared);
  EXPECT_EQ(own.ring().order_entries, nullptr);
}

constexpr uint64_t kSharedRingSize = SharedRingOfOwn::kSize;
constexpr Hostile kHostile[] = {
    {"OrderAboveAll", [](SharedSrq& srq) { srq.order = 25; }},
    {"OrderThatShiftsOut", [](SharedSrq& srq) { srq.order = 64; }},
    {"OrderThatDoesNotFit", [](SharedSrq& srq) { srq.order = 17; }},
    {"WordsOverTheEnd", [](SharedSrq& srq) { srq.order_offset = kSharedRingSize - 56; }},
    {"WordsMisaligned", [](SharedSrq& srq) { srq.order_offset = 4097; }},
    {"NoQueue", [](SharedSrq& srq) { srq.order_offset = 0; }},
    {"WqesOverTheEnd", [](SharedSrq& srq) { srq.wqe_offset = kSharedRingSize - 8 * srq.stride + 16; }},
    {"WqesMisaligned", [](SharedSrq& srq) { srq.wqe_offset = 16385; }},
    {"BounceBuffersOverTheEnd",
     [](SharedSrq& srq) { srq.bounce_offset = kSharedRingSize - 8 * kBounceSize + 1; }},
    {"StrideTooSmallForTheList", [](SharedSrq& srq) { srq.stride -= 16; }},
    {"StrideThatMisaligns", [](SharedSrq& srq) { srq.stride += 1; }},
    {"ListThatWraps", [](SharedSrq& srq) { srq.max_sge = UINT32_MAX; }},
};
INSTANTIATE_TEST_SUITE_P(Each, HostileSharedRing, ::testing::ValuesIn(kHostile),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace verbena
