// SPDX-License-Identifier: BSD-2-Clause
//
// The ring of explanations in a segment.
#include "adapter/refusals.h"

#include <gtest/gtest.h>

#include <memory>

namespace verbena {
namespace {

constexpr uint32_t kPeer = 0x123;

struct RefusalsTest : ::testing::Test {
  std::unique_ptr<Refusals> refusals = std::make_unique<Refusals>();

  bool add(uint32_t qpn) {
    RequestRefusal refusal{};
    refusal.qpn = qpn;
    return refusals->add(refusal, kPeer);
  }
  // 0: there is none.
  uint32_t take(bool peer_is_gone = false) {
    RequestRefusal refusal{};
    return refusals->take(&refusal, [&](uint32_t worker) { return worker == kPeer && peer_is_gone; })
               ? refusal.qpn
               : 0;
  }
};

TEST_F(RefusalsTest, AreTakenInTheirOrder) {
  EXPECT_EQ(take(), 0u);
  for (uint32_t qpn = 1; qpn <= 3; ++qpn) EXPECT_TRUE(add(qpn));
  for (uint32_t qpn = 1; qpn <= 3; ++qpn) EXPECT_EQ(take(), qpn);
  EXPECT_EQ(take(), 0u);
}

TEST_F(RefusalsTest, KeepTheirOrderAroundTheEnd) {
  for (uint32_t qpn = 1; qpn <= 3 * Refusals::kEntries; ++qpn) {
    EXPECT_TRUE(add(qpn));
    EXPECT_EQ(qpn == 1 || take() == qpn - 1, true) << qpn;
  }
}

TEST_F(RefusalsTest, OfAFullRingAreCountedAndDoNotWait) {
  for (uint32_t qpn = 1; qpn <= Refusals::kEntries; ++qpn) EXPECT_TRUE(add(qpn));
  EXPECT_FALSE(add(99));
  EXPECT_EQ(refusals->lost.load(), 1u);
  EXPECT_EQ(take(), 1u);
  EXPECT_TRUE(add(100));
}

// A peer was killed, or is stopped, while it wrote.
TEST_F(RefusalsTest, OfAPeerThatIsGoneAreFreed) {
  refusals->entries[5].state = uint64_t{kPeer} << 8 | 0x80;
  EXPECT_EQ(take(), 0u);
  EXPECT_NE(refusals->entries[5].state.load(), RefusalEntry::kFree);
  EXPECT_EQ(take(true), 0u);
  EXPECT_EQ(refusals->entries[5].state.load(), RefusalEntry::kFree);
}

TEST_F(RefusalsTest, OfADamagedRingEnd) {
  for (RefusalEntry& entry : refusals->entries) entry.state = 0x5555'5555'5555'5555;
  EXPECT_EQ(take(), 0u);
  EXPECT_FALSE(add(1));
}

}  // namespace
}  // namespace verbena
