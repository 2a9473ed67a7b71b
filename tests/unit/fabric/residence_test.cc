// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/residence.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

// Lives on the node for as long as the object does.
class Resident {
 public:
  explicit Resident(const std::string& node, ServiceWork work = nullptr, void* context = nullptr)
      : error(home.enter(node, work, context)) {}
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;
  ~Resident() {
    if (error == 0) home.leave();
  }
  Residence home;
  const int error;
};

class Home : public ::testing::Test {
 protected:
  // A child that lives on the node until told otherwise; its slot and generation.
  struct Other {
    explicit Other(const std::string& node)
        : child([&](const Child& self) {
            Residence home;
            if (home.enter(node, nullptr, nullptr) != 0) return 1;
            self.tell(static_cast<char>(home.slot() + 1));
            self.hear();
            home.leave();
            return 0;
          }),
          slot(static_cast<uint32_t>(child.answer()) - 1) {}
    Child child;
    uint32_t slot;
  };
  bool alive(uint32_t slot) const {
    return node_.directory().alive(slot, node_.directory().slot(slot).generation.load());
  }

  TemporaryNode node_;
};

TEST_F(Home, IsAliveOnceEntered) {
  const Resident resident(node_.path());
  ASSERT_EQ(resident.error, 0);
  EXPECT_TRUE(node_.directory().alive(resident.home.slot(), resident.home.generation()));
}

TEST_F(Home, LeavesNothingBehind) {
  uint32_t slot;
  {
    const Resident resident(node_.path());
    ASSERT_EQ(resident.error, 0);
    slot = resident.home.slot();
    EXPECT_EQ(node_.slot_folders(), 1u);
  }
  EXPECT_FALSE(node_.directory().occupied(slot));
  EXPECT_EQ(node_.directory().slot(slot).state.load(), SlotState::kFree);
  EXPECT_EQ(node_.slot_folders(), 0u);
}

TEST_F(Home, OfSeveralInOneProcessAreDifferentSlots) {
  const Resident first(node_.path()), second(node_.path());
  ASSERT_EQ(first.error, 0);
  ASSERT_EQ(second.error, 0);
  EXPECT_NE(first.home.slot(), second.home.slot());
}

TEST_F(Home, InASlotUsedAgainIsAnotherGeneration) {
  uint32_t slot, generation;
  {
    const Resident resident(node_.path());
    slot = resident.home.slot();
    generation = resident.home.generation();
  }
  node_.directory().header().next_slot.store(slot);
  const Resident again(node_.path());
  ASSERT_EQ(again.home.slot(), slot);
  EXPECT_GT(again.home.generation(), generation);
  EXPECT_FALSE(node_.directory().alive(slot, generation));
}

TEST_F(Home, IsNotInASlotThatIsTaken) {
  const Resident first(node_.path());
  node_.directory().header().next_slot.store(first.home.slot());
  const Resident second(node_.path());
  EXPECT_EQ(second.home.slot(), first.home.slot() + 1);
}

TEST_F(Home, NeedsANode) { EXPECT_EQ(Resident("/nowhere").error, ENOENT); }

TEST_F(Home, IsRefusedOnANodeOfAnotherVersion) {
  node_.directory().header().layout_version += 1;
  EXPECT_EQ(Resident(node_.path()).error, EPROTO);
}

TEST_F(Home, IsRefusedWhenEverySlotIsTaken) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) ASSERT_EQ(pthread_mutex_lock(&node_.directory().slot(i).life), 0);
  EXPECT_EQ(Resident(node_.path()).error, EMFILE);
  for (uint32_t i = 0; i < kMaxSlots; ++i) pthread_mutex_unlock(&node_.directory().slot(i).life);
}

TEST_F(Home, TakesTheLastSlotThatIsFree) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    if (i != 700) pthread_mutex_lock(&node_.directory().slot(i).life);
  }
  {
    const Resident resident(node_.path());
    EXPECT_EQ(resident.error, 0);
    EXPECT_EQ(resident.home.slot(), 700u);
  }
  for (uint32_t i = 0; i < kMaxSlots; ++i)
    if (i != 700) pthread_mutex_unlock(&node_.directory().slot(i).life);
}

TEST_F(Home, OfAKilledProcessIsDeadAtOnce) {
  Other other(node_.path());
  ASSERT_TRUE(alive(other.slot));
  other.child.kill_now();
  EXPECT_FALSE(alive(other.slot));
}

TEST_F(Home, OfAKilledProcessIsClearedByTheNextWhoComes) {
  Other other(node_.path());
  const uint32_t qpn = node_.directory().claim_qpn(other.slot, 1);
  node_.directory().hazard(other.slot, 0).target.store(1ull << 48);
  other.child.kill_now();
  const Resident resident(node_.path());
  ASSERT_EQ(resident.error, 0);
  QpnEntry found;
  EXPECT_FALSE(node_.directory().find_qpn(qpn, &found));
  EXPECT_EQ(node_.directory().hazard(other.slot, 0).target.load(), 0u);
  EXPECT_EQ(node_.directory().slot(other.slot).state.load(), SlotState::kFree);
  EXPECT_EQ(node_.slot_folders(), 1u);
}

TEST_F(Home, OfAKilledProcessIsTakenInANewGeneration) {
  Other other(node_.path());
  const uint32_t generation = node_.directory().slot(other.slot).generation.load();
  other.child.kill_now();
  node_.directory().header().next_slot.store(other.slot);
  const Resident resident(node_.path());
  EXPECT_EQ(resident.home.slot(), other.slot);
  EXPECT_GT(resident.home.generation(), generation);
}

TEST_F(Home, OfAStoppedProcessIsLeftAlone) {
  Other other(node_.path());
  other.child.stop();
  reclaim_dead_slots(node_.directory(), node_.path());
  EXPECT_TRUE(alive(other.slot));
  EXPECT_EQ(node_.slot_folders(), 1u);
}

TEST_F(Home, DoesItsWorkWhenKicked) {
  std::atomic<int> calls{0};
  Resident resident(
      node_.path(),
      [](void* count) -> int64_t {
        static_cast<std::atomic<int>*>(count)->fetch_add(1);
        return -1;
      },
      &calls);
  const int before = calls.load();
  resident.home.kick();
  EXPECT_TRUE(eventually([&] { return calls.load() > before; }));
}

TEST_F(Home, ComesBackWhenItsWorkAskedForIt) {
  std::atomic<int> calls{0};
  Resident resident(
      node_.path(),
      [](void* count) -> int64_t {
        return static_cast<std::atomic<int>*>(count)->fetch_add(1) < 5 ? 1'000'000 : -1;
      },
      &calls);
  resident.home.kick();
  EXPECT_TRUE(eventually([&] { return calls.load() >= 6; }));
}

}  // namespace
}  // namespace verbena
