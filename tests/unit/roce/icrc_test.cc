// SPDX-License-Identifier: BSD-2-Clause
#include "roce/icrc.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace verbena::roce {
namespace {

std::vector<uint8_t> some_packet(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> packet(size);
  for (uint8_t& byte : packet) byte = static_cast<uint8_t>(random());
  return packet;
}

constexpr Ipv4Flow kFlow{{10, 99, 0, 1}, {10, 99, 0, 2}, 0xc001, 4791, 0, true};

TEST(RoceIcrc, CoversAllButWhatRoutersChange) {
  const auto packet = some_packet(40, 1);
  const uint32_t good = icrc(kFlow, packet);
  auto other = packet;
  other[4] ^= 0xc0;  // FECN, BECN
  EXPECT_EQ(icrc(kFlow, other), good);
  for (size_t at = 0; at < packet.size(); ++at) {
    if (at == 4) continue;
    other = packet;
    other[at] ^= 1;
    EXPECT_NE(icrc(kFlow, other), good) << at;
  }
  Ipv4Flow flow = kFlow;
  flow.source[3] = 7;
  EXPECT_NE(icrc(flow, packet), good);
  flow = kFlow;
  flow.identification = 1;
  EXPECT_NE(icrc(flow, packet), good);
  flow = kFlow;
  flow.dont_fragment = false;
  EXPECT_NE(icrc(flow, packet), good);
  flow = kFlow;
  flow.source_port ^= 1;
  EXPECT_NE(icrc(flow, packet), good);
}

TEST(RoceIcrc, TellsTheIdentification) {
  for (const size_t size : {12u, 16u, 100u, 1036u, 4124u})
    for (const uint16_t identification : {0x0000, 0x0001, 0x0100, 0x1234, 0xffff}) {
      const auto packet = some_packet(size, identification);
      Ipv4Flow flow = kFlow;
      flow.identification = identification;
      uint16_t found = 0x5555;
      ASSERT_TRUE(find_identification(kFlow, packet, icrc(flow, packet), &found)) << size;
      EXPECT_EQ(found, identification);
    }
}

TEST(RoceIcrc, OfADamagedPacketFitsNoIdentification) {
  const auto packet = some_packet(64, 3);
  Ipv4Flow flow = kFlow;
  flow.identification = 0x4321;
  const uint32_t good = icrc(flow, packet);
  int passed = 0;
  for (size_t bit = 0; bit < packet.size() * 8; ++bit) {
    if (bit / 8 == 4) continue;
    auto damaged = packet;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    uint16_t found;
    passed += find_identification(kFlow, damaged, good, &found);
  }
  EXPECT_EQ(passed, 0);
}

TEST(RoceIcrc, IsStoredLittleEndian) {
  uint8_t bytes[4];
  put_icrc(bytes, 0x01020304);
  EXPECT_EQ(bytes[0], 4);
  EXPECT_EQ(bytes[3], 1);
  EXPECT_EQ(get_icrc(bytes), 0x01020304u);
}

}  // namespace
}  // namespace verbena::roce
