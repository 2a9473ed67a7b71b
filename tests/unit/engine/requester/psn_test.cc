// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/psn.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

TEST(Psn, HigherBitsAreDropped) { EXPECT_EQ(psn_of(0xff123456), 0x123456u); }

TEST(Psn, NextWrapsAtTwentyFourBits) { EXPECT_EQ(psn_next(0xffffff), 0u); }

TEST(Psn, NextOfZeroIsOne) { EXPECT_EQ(psn_next(0), 1u); }

TEST(Psn, AddWrapsAndTakesLargeCounts) {
  EXPECT_EQ(psn_add(0xfffff0, 0x20), 0x10u);
  EXPECT_EQ(psn_add(5, uint64_t{1} << 24), 5u);
}

TEST(Psn, DistanceTakesTheShorterWayRound) {
  struct {
    uint32_t from, to;
    int32_t distance;
  } const rows[] = {{0, 0, 0},
                    {0, 1, 1},
                    {1, 0, -1},
                    {0xffffff, 0, 1},
                    {0, 0xffffff, -1},
                    {0, 0x7fffff, 0x7fffff},
                    {0, 0x800000, -0x800000},
                    {0x800000, 0, -0x800000},
                    {0xfffffe, 3, 5},
                    {3, 0xfffffe, -5}};
  for (const auto& row : rows)
    EXPECT_EQ(psn_distance(row.from, row.to), row.distance) << std::hex << row.from << " to " << row.to;
}

TEST(Psn, DistanceIgnoresHigherBits) { EXPECT_EQ(psn_distance(0xff000001, 0x00000002), 1); }

TEST(Mtu, BytesOfEachCode) {
  const uint32_t bytes[] = {256, 512, 1024, 2048, 4096};
  for (int code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) EXPECT_EQ(mtu_bytes(code), bytes[code - 1]);
}

TEST(Mtu, NoSuchCodeHasNoBytes) {
  EXPECT_EQ(mtu_bytes(0), 0u);
  EXPECT_EQ(mtu_bytes(6), 0u);
}

TEST(Packets, EmptyMessageIsOnePacket) { EXPECT_EQ(packets_of(0, 1024), 1u); }

TEST(Packets, RoundsUpAroundEachMtu) {
  for (const uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
    EXPECT_EQ(packets_of(1, mtu), 1u) << mtu;
    EXPECT_EQ(packets_of(mtu - 1, mtu), 1u) << mtu;
    EXPECT_EQ(packets_of(mtu, mtu), 1u) << mtu;
    EXPECT_EQ(packets_of(mtu + 1, mtu), 2u) << mtu;
  }
}

TEST(Packets, LargestMessageFitsThePsnWindow) { EXPECT_EQ(packets_of(uint64_t{1} << 31, 256), kPsnWindow); }

TEST(Packets, AnyLengthIsCountedWithoutOverflow) {
  EXPECT_EQ(packets_of(UINT64_MAX, 1024), uint64_t{1} << 54);
}

static_assert(psn_next(0xffffff) == 0 && packets_of(0, 256) == 1, "usable in constant expressions");

}  // namespace
}  // namespace verbena
