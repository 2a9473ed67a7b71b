// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/hazards.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

constexpr uint32_t kHost = 40, kGuest = 41;
constexpr int64_t kMs = 1'000'000;

class Hazards : public ::testing::Test {
 protected:
  // A child in slot kGuest that holds a hazard guard on kHost until told to release it.
  Child guest() {
    return Child([this](const Child& self) {
      RobustLock lock;
      live_in_guest_slot(&lock);
      std::optional<HazardGuard> guard(std::in_place, directory().hazards(kGuest), kHost);
      self.tell('v');
      self.hear();
      guard.reset();
      self.tell('o');
      self.hear();
      return 0;
    });
  }
  // The calling process has the slot kGuest, and has used one of its records.
  void live_in_guest_slot(RobustLock* lock) {
    Slot& slot = directory().slot(kGuest);
    ASSERT_EQ(lock->try_lock(slot.life), 0);
    directory().note_holder(kGuest);
    slot.generation.store(1);
    slot.state.store(SlotState::kLive);
    slot.hazards_used.store(1);
  }
  const NodeDirectory& directory() const { return node_.directory(); }
  bool gone(int64_t patience = kMs) const { return hazards_released(directory(), kHost, kAnySlot, patience); }

  TemporaryNode node_;
};

TEST_F(Hazards, NobodyIsThereAtFirst) { EXPECT_TRUE(gone()); }

TEST_F(Hazards, AGuardIsSeen) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  EXPECT_FALSE(gone());
}

TEST_F(Hazards, AGuardOnAnotherSlotIsNone) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  EXPECT_TRUE(hazards_released(directory(), kHost + 1, kAnySlot, kMs));
  EXPECT_TRUE(hazards_released(directory(), kGuest, kAnySlot, kMs));
}

TEST_F(Hazards, AReleasedGuardIsNone) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  child.command('o');
  ASSERT_EQ(child.answer(), 'o');
  EXPECT_TRUE(gone());
}

TEST_F(Hazards, AGuardOfADeadProcessIsNone) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  child.kill_now();
  EXPECT_TRUE(gone());
  wait_for_hazards(directory(), kHost, kAnySlot, nullptr, nullptr);
}

TEST_F(Hazards, PatienceIsKeptAndEnds) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  child.stop();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(gone(30 * kMs));
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(30));
  EXPECT_LT(took, std::chrono::seconds(5));
}

TEST_F(Hazards, WaitingEndsWhenTheGuardIsReleased) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  std::atomic<bool> over{false};
  std::jthread waiting([&] {
    wait_for_hazards(directory(), kHost, kAnySlot, nullptr, nullptr);
    over = true;
  });
  EXPECT_FALSE(gone(50 * kMs));  // some time goes by
  EXPECT_FALSE(over);
  child.command('o');
  EXPECT_TRUE(eventually([&] { return over.load(); }));
}

TEST_F(Hazards, WaitingIsNotForGuardsThatBeganLater) {
  // The same record, changed once: the guard that was seen has been released.
  RobustLock lock;
  ASSERT_NO_FATAL_FAILURE(live_in_guest_slot(&lock));
  std::atomic<uint64_t>& record = directory().hazard(kGuest, 0).target;
  std::atomic<uint64_t> guards{0};
  std::atomic<bool> over{false};
  record.store(HazardWord::of(kHost, 0));
  std::jthread holding([&] {
    while (!over.load()) record.store(HazardWord::of(kHost, guards.fetch_add(1)));
  });
  wait_for_hazards(directory(), kHost, kAnySlot, nullptr, nullptr);
  over = true;
  holding.join();
}

TEST_F(Hazards, ADamagedRecordIsNoGuard) {
  RobustLock lock;
  ASSERT_NO_FATAL_FAILURE(live_in_guest_slot(&lock));
  std::atomic<uint64_t>& record = directory().hazard(kGuest, 0).target;
  const int64_t patience = 10'000'000;
  for (uint32_t bit = 0; bit < 64; ++bit) {  // an idle record with one bit set
    record.store(uint64_t{1} << bit);
    for (const uint32_t target : {0u, 1u, kHost, kGuest, 3u, 7u, 15u})
      EXPECT_TRUE(hazards_released(directory(), target, kAnySlot, patience)) << "bit " << bit;
    wait_for_hazards_of(directory(), kGuest);
  }
  record.store(HazardWord::of(kHost, 5));
  EXPECT_FALSE(hazards_released(directory(), kHost, kAnySlot, patience));
  EXPECT_TRUE(hazards_released(directory(), kHost + 1, kAnySlot, patience));
}

TEST_F(Hazards, AStalledTeardownNamesTheProcessThatItWaitsFor) {
  Child child = guest();
  ASSERT_EQ(child.answer(), 'v');
  directory().slot(kGuest).pid.store(child.pid());
  child.stop();
  std::atomic<int32_t> named{0};
  std::jthread waiting([&] {
    wait_for_hazards(
        directory(), kHost, kAnySlot,
        [](void* at, int32_t pid) { static_cast<std::atomic<int32_t>*>(at)->store(pid); }, &named);
  });
  EXPECT_TRUE(eventually([&] { return named.load() == child.pid(); }));
  child.kill_now();
}

TEST_F(Hazards, MoreThreadsThanRecordsTakeTurns) {
  std::atomic<int> done{0};
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < kHazardsPerSlot + 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) const HazardGuard guard(directory().hazards(kGuest), kHost);
        ++done;
      });
  }
  EXPECT_EQ(done.load(), static_cast<int>(kHazardsPerSlot) + 8);
  for (uint32_t i = 0; i < kHazardsPerSlot; ++i) EXPECT_EQ(directory().hazard(kGuest, i).target.load(), 0u);
}

}  // namespace
}  // namespace verbena
