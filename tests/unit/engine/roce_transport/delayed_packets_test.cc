// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/delayed_packets.h"

#include <gtest/gtest.h>

#include <array>

namespace verbena {
namespace {

TEST(DelayedPackets, LeaveInTheOrderOfTheirTimes) {
  DelayedPackets packets;
  std::array<uint8_t, 3> bytes{1, 2, 3};
  EXPECT_TRUE(packets.keep({}, {}, 1, bytes, 300));
  EXPECT_TRUE(packets.keep({}, {}, 2, std::span(bytes).first(2), 100));
  EXPECT_TRUE(packets.keep({}, {}, 3, bytes, 200));
  EXPECT_TRUE(packets.take_due(99).empty());
  const auto due = packets.take_due(200);
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].socket, 2u);
  EXPECT_EQ(due[0].bytes, (std::vector<uint8_t>{1, 2}));
  EXPECT_EQ(due[1].socket, 3u);
  EXPECT_EQ(packets.take_due(1000).size(), 1u);
  EXPECT_TRUE(packets.take_due(1000).empty());
}

TEST(DelayedPackets, AreBounded) {
  DelayedPackets packets;
  const std::array<uint8_t, 1> byte{};
  for (size_t i = 0; i < DelayedPackets::kMost; ++i) EXPECT_TRUE(packets.keep({}, {}, 0, byte, 1)) << i;
  EXPECT_FALSE(packets.keep({}, {}, 0, byte, 1));
}

}  // namespace
}  // namespace verbena
