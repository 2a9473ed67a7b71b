// SPDX-License-Identifier: BSD-2-Clause
//
// The packed words of shared memory: every value survives packing, and the fields do not overlap.
#include "adapter/layout.h"

#include <gtest/gtest.h>

#include "fabric/node_directory.h"

namespace verbena {
namespace {

TEST(Worker, KeepsSlotAndGeneration) {
  const Worker worker = Worker::unpack(Worker{1023, 0x3fff}.pack());
  EXPECT_EQ(worker.slot, 1023u);
  EXPECT_EQ(worker.generation, 0x3fffu);
}

TEST(Worker, CutsAGenerationToItsLowBits) {
  EXPECT_EQ(Worker::unpack(Worker{5, 0x4001}.pack()).generation, 1u);
  EXPECT_EQ(Worker::unpack(Worker{5, 0x4001}.pack()).slot, 5u);
}

TEST(CqeState, KeepsItsFields) {
  const CqeState state = CqeState::unpack(CqeState{0xfedcba98, CqeKind::kEager}.pack());
  EXPECT_EQ(state.lap, 0xfedcba98u);
  EXPECT_EQ(state.kind, CqeKind::kEager);
}
TEST(ClaimWord, KeepsItsFields) {
  const ClaimWord claim = ClaimWord::unpack(ClaimWord{0xfedcba98, 0xabcdef}.pack());
  EXPECT_EQ(claim.lap, 0xfedcba98u);
  EXPECT_EQ(claim.worker, 0xabcdefu);
}
TEST(ClaimWord, ZeroIsNoClaimOfTheFirstLap) { EXPECT_EQ((ClaimWord{0, 0}.pack()), 0u); }
TEST(ClaimWord, OfAWorkerTooWideDoesNotReachTheLap) {
  EXPECT_EQ(ClaimWord::unpack(ClaimWord{1, 0xffff'ffff}.pack()).lap, 1u);
}

TEST(ResponderState, KeepsItsFields) {
  const ResponderState responder = ResponderState::unpack(ResponderState{0x12'3456'789a'bcdeull, 6}.pack());
  EXPECT_EQ(responder.generation, 0x12'3456'789a'bcdeull);
  EXPECT_EQ(responder.state, 6);
}

TEST(ReadyWord, KeepsItsFields) {
  const ReadyWord ready = ReadyWord::unpack(ReadyWord{0xa5, 0xfedcba, 0x89abcdef}.pack());
  EXPECT_EQ(ready.lap, 0xa5);
  EXPECT_EQ(ready.epoch, 0xfedcbau);
  EXPECT_EQ(ready.length, 0x89abcdefu);
}

TEST(MemoryKey, KeepsItsFields) {
  const MemoryKey key = MemoryKey::unpack(MemoryKey{kMaxMrsPerProcess - 1, true, 0xee}.pack());
  EXPECT_EQ(key.index, kMaxMrsPerProcess - 1);
  EXPECT_TRUE(key.remote);
  EXPECT_EQ(key.tag, 0xee);
}

TEST(MemoryKey, LocalAndRemoteDifferInEveryCase) {
  for (uint32_t index : {1u, 77u, kMaxMrsPerProcess - 1})
    for (unsigned tag = 0; tag < 256; ++tag) {
      const auto t = static_cast<uint8_t>(tag);
      ASSERT_NE((MemoryKey{index, false, t}.pack()), (MemoryKey{index, true, t}.pack()));
    }
}

TEST(QpnEntry, KeepsItsFields) {
  const QpnEntry entry = QpnEntry::unpack(QpnEntry{0xfffffe, 1023, 0xabcdef}.pack());
  EXPECT_EQ(entry.qpn, 0xfffffeu);
  EXPECT_EQ(entry.slot, 1023u);
  EXPECT_EQ(entry.qp_index, 0xabcdefu);
}

}  // namespace
}  // namespace verbena
