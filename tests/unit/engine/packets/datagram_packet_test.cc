// SPDX-License-Identifier: BSD-2-Clause
//
// UD: which packets are accepted.
#include "engine/packets/datagram_packet.h"

#include <gtest/gtest.h>

namespace verbena::packets {
namespace {

TEST(RoceDatagram, IsAcceptedByItsKeys) {
  const uint8_t payload[] = {1, 2, 3};
  const Datagram sent{7, 8, 0x1234, 9, 0x8001, true, true, 0xabcd, payload};
  Datagram got;
  EXPECT_EQ(accept(packet_of(sent), 0x0001, 0x1234, 256, &got), Refused::kNot);
  EXPECT_EQ(got.source_qpn, 8u);
  EXPECT_EQ(got.immediate, 0xabcdu);
  EXPECT_EQ(got.payload.size(), 3u);
  EXPECT_TRUE(got.solicited && got.has_immediate);
  EXPECT_EQ(accept(packet_of(sent), 0x8002, 0x1234, 256, &got), Refused::kWrongPkey);
  EXPECT_EQ(accept(packet_of(sent), 0x8001, 0x1235, 256, &got), Refused::kWrongQkey);
  EXPECT_EQ(accept(packet_of(sent), 0x8001, 0x1234, 2, &got), Refused::kTooLong);
  roce::Packet other;
  other.bth.opcode = 0x04;
  EXPECT_EQ(accept(other, 0xffff, 0, 256, &got), Refused::kNoDatagram);
}

TEST(RoceDatagram, NeedsOneFullMemberOfThePartition) {
  EXPECT_TRUE(pkeys_match(0xffff, 0x7fff));
  EXPECT_FALSE(pkeys_match(0x7fff, 0x7fff));
  EXPECT_FALSE(pkeys_match(0xffff, 0xfffe));
  EXPECT_FALSE(pkeys_match(0x8000, 0x8000));
}

}  // namespace
}  // namespace verbena::packets
