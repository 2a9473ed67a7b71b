// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

#include <gtest/gtest.h>

#include "unit/adapter/ring_of_own.h"

namespace verbena {
namespace {

using Indices = std::vector<int64_t>;
constexpr uint32_t kAlice = 1, kBob = 2;

TEST(CompletionRing, FreshMemoryIsAnEmptyRing) {
  RingOfOwn ring(2);
  EXPECT_EQ(ring.next(), -1);
}

TEST(CompletionRing, HandsEntriesOutInTheOrderOfClaiming) {
  RingOfOwn ring(3);
  for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(ring.append(kAlice, 0, i));
  EXPECT_EQ(ring.drain(), (Indices{0, 1, 2, 3, 4}));
}

TEST(CompletionRing, DoesNotShowWhatIsOnlyClaimed) {
  RingOfOwn ring(2);
  ring.claim(kAlice, 0, 7);
  EXPECT_EQ(ring.next(), -1);
}

TEST(CompletionRing, HoldsAsManyAsItHasEntriesAndRefusesTheNext) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.append(kAlice, 0, i));
  EXPECT_FALSE(ring.append(kAlice, 0, 4));
  EXPECT_EQ(ring.drain(), (Indices{0, 1, 2, 3}));
}

TEST(CompletionRing, OfOneEntryWorks) {
  RingOfOwn ring(0);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 0, i));
    EXPECT_FALSE(ring.append(kAlice, 0, 99));
    EXPECT_EQ(ring.next(), i);
  }
}

TEST(CompletionRing, HasRoomAgainForEachEntryConsumed) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 4; ++i) ring.append(kAlice, 0, i);
  EXPECT_EQ(ring.next(), 0);
  EXPECT_TRUE(ring.append(kAlice, 0, 4));
  EXPECT_FALSE(ring.append(kAlice, 0, 5));
}

TEST(CompletionRing, KeepsItsOrderOverManyLaps) {
  RingOfOwn ring(1);
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 0, i));
    ASSERT_EQ(ring.next(), i);
  }
}

TEST(CompletionRing, FindsTheFreeEntryFromAHintThatIsLapsBehind) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 41; ++i) {
    ring.append(kAlice, 0, i);
    ring.next();
  }
  ring.ring.places->tail.store(3);
  const Claim claim = ring.claim(kAlice, 0, 41);
  ASSERT_NE(claim.entry, nullptr);
  EXPECT_EQ(claim.position, 41u);
}

TEST(CompletionRing, TellsFullFromAHintThatIsLapsBehind) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 40; ++i) {
    ring.append(kAlice, 0, i);
    ring.next();
  }
  for (uint32_t i = 0; i < 4; ++i) ring.append(kAlice, 0, i);
  ring.ring.places->tail.store(3);
  EXPECT_EQ(ring.claim(kAlice, 0, 9).entry, nullptr);
}

TEST(CompletionRing, StepsOverTheClaimOfADeadProducer) {
  RingOfOwn ring(2);
  ring.claim(kBob, 0, 66);
  ring.append(kAlice, 1, 1);
  ring.dead.insert(kBob);
  EXPECT_EQ(ring.drain(), (Indices{1}));
}

TEST(CompletionRing, UsesTheEntryOfADeadProducerAgain) {
  RingOfOwn ring(1);
  ring.claim(kBob, 0, 66);
  ring.append(kAlice, 1, 1);
  ring.dead.insert(kBob);
  ring.drain();
  EXPECT_TRUE(ring.append(kAlice, 1, 2));
  EXPECT_TRUE(ring.append(kAlice, 1, 3));
  EXPECT_EQ(ring.drain(), (Indices{2, 3}));
}

TEST(CompletionRing, GoesPastTheClaimOfALivingProducer) {
  RingOfOwn ring(2);
  const Claim slow = ring.claim(kBob, 0, 0);
  ring.append(kAlice, 1, 1);
  ring.append(kAlice, 1, 2);
  EXPECT_EQ(ring.drain(), (Indices{1, 2}));
  publish_completion(ring.ring, slow, CqeKind::kPublished);
  EXPECT_EQ(ring.drain(), (Indices{0}));
}

// A producer that is stopped in the middle keeps one entry from the others, not the ring.
TEST(CompletionRing, GoesRoundAnEntryThatIsStillBeingFilled) {
  RingOfOwn ring(3);
  const Claim slow = ring.claim(kBob, 0, 1000);
  for (uint32_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  publish_completion(ring.ring, slow, CqeKind::kPublished);
  EXPECT_EQ(ring.drain(), (Indices{1000}));
}

TEST(CompletionRing, KeepsTheOrderOfAQpWhoseFirstEntryWasLeftBehind) {
  RingOfOwn ring(3);
  const Claim slow = ring.claim(kBob, 0, 1000);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  ASSERT_TRUE(ring.append(kAlice, 1, 20));
  publish_completion(ring.ring, slow, CqeKind::kEager);
  ASSERT_TRUE(ring.append(kBob, 0, 1001));
  EXPECT_EQ(ring.drain(), (Indices{1000, 20, 1001}));
}

TEST(CompletionRing, UsesAPlaceThatWasLeftBehindAgain) {
  RingOfOwn ring(3);
  const Claim slow = ring.claim(kBob, 0, 1000);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  publish_completion(ring.ring, slow, CqeKind::kPublished);
  ASSERT_EQ(ring.drain(), (Indices{1000}));
  for (uint32_t i = 20; i < 40; ++i) {  // past the place
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(ring.append(kAlice, 1, i));
  EXPECT_FALSE(ring.append(kAlice, 1, 8));
  EXPECT_EQ(ring.drain(), (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(CompletionRing, TakesBackThePlaceOfTheDeadThatWasLeftBehind) {
  RingOfOwn ring(3);
  ring.claim(kBob, 0, 1000);
  for (uint32_t i = 0; i < 20; ++i) {
    if (i == 10) ring.dead.insert(kBob);
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  for (uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(ring.append(kAlice, 1, i));
  EXPECT_EQ(ring.drain(), (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(CompletionRing, PurgesWhatWasLeftBehind) {
  RingOfOwn ring(3);
  const Claim slow = ring.claim(kBob, 0, 1000);
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(ring.append(kAlice, 1, i));
    ASSERT_EQ(ring.drain(), (Indices{i}));
  }
  publish_completion(ring.ring, slow, CqeKind::kPublished);
  ring.consumer.for_each([](Cqe& entry, bool) { return entry.qp_index == 0; });
  ASSERT_TRUE(ring.append(kAlice, 1, 20));
  EXPECT_EQ(ring.drain(), (Indices{20}));
}

TEST(CompletionRing, TellsWhichEntriesHaveBytesToScatter) {
  RingOfOwn ring(2);
  ring.append(kAlice, 0, 0, CqeKind::kEager);
  ring.append(kAlice, 0, 1, CqeKind::kPublished);
  bool eager = false;
  EXPECT_EQ(ring.next(&eager), 0);
  EXPECT_TRUE(eager);
  EXPECT_EQ(ring.next(&eager), 1);
  EXPECT_FALSE(eager);
}

TEST(CompletionRing, EndsAtBytesThatAreNoState) {
  RingOfOwn ring(2);
  ring.append(kAlice, 0, 0);
  ring.ring.entry(1).state.store(0xdead'beef'0000'00ff);
  EXPECT_EQ(ring.drain(), (Indices{0}));
}

TEST(CompletionRing, AProducerComesBackFromARingOfGarbage) {
  RingOfOwn ring(4);
  for (uint64_t i = 0; i < 16; ++i) ring.ring.claims[i].store(0xdead'beef'0000'00ff + (i << 40));
  EXPECT_EQ(ring.claim(kAlice, 0, 0).entry, nullptr);
}

TEST(CompletionRingPurge, TakesOutWhatTheCallbackNames) {
  RingOfOwn ring(3);
  for (uint32_t i = 0; i < 6; ++i) ring.append(kAlice, i % 2, i);
  ring.consumer.for_each([](Cqe& entry, bool) { return entry.qp_index == 1; });
  EXPECT_EQ(ring.drain(), (Indices{0, 2, 4}));
}

TEST(CompletionRingPurge, GivesTheEntriesBackToTheProducers) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 4; ++i) ring.append(kAlice, 0, i);
  ring.consumer.for_each([](Cqe&, bool) { return true; });
  EXPECT_EQ(ring.next(), -1);
  for (uint32_t i = 4; i < 8; ++i) EXPECT_TRUE(ring.append(kAlice, 0, i)) << i;
  EXPECT_EQ(ring.drain(), (Indices{4, 5, 6, 7}));
}

TEST(CompletionRingPurge, SeesEachCompleteEntryOfAFullRingOnce) {
  RingOfOwn ring(2);
  for (uint32_t i = 0; i < 6; ++i) {
    ring.append(kAlice, 0, i);
    if (i < 2) ring.next();
  }
  Indices seen;
  ring.consumer.for_each([&](Cqe& entry, bool) {
    seen.push_back(entry.index);
    return false;
  });
  EXPECT_EQ(seen, (Indices{2, 3, 4, 5}));
}

TEST(CompletionRingPurge, LeavesTheLivingTheirClaims) {
  RingOfOwn ring(2);
  const Claim claim = ring.claim(kBob, 1, 0);
  ring.append(kAlice, 1, 1);
  ring.consumer.for_each([](Cqe&, bool) { return true; });
  publish_completion(ring.ring, claim, CqeKind::kPublished);
  EXPECT_EQ(ring.drain(), (Indices{0}));
}

TEST(CompletionRingScattering, IsToldOnceForEachEagerEntry) {
  RingOfOwn ring(2);
  ring.append(kAlice, 1, 0, CqeKind::kEager);
  int scattered = 0;
  for (int i = 0; i < 2; ++i)
    ring.consumer.for_each([&](Cqe& entry, bool eager) {
      if (eager) ++scattered, CompletionConsumer::mark_scattered(entry);
      return false;
    });
  EXPECT_EQ(scattered, 1);
  bool eager = true;
  EXPECT_EQ(ring.next(&eager), 0);
  EXPECT_FALSE(eager);
}

}  // namespace
}  // namespace verbena
