// SPDX-License-Identifier: BSD-2-Clause
#include "roce/packet.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "roce/syndrome.h"

namespace verbena::roce {
namespace {

using Bytes = std::vector<uint8_t>;

// A packet of this opcode with a different number in each field.
Packet packet_of(uint8_t opcode, std::span<const uint8_t> payload) {
  Packet packet;
  packet.bth = {opcode, true, false, 0, 0, 0x8001, false, true, 0x123456, true, 0xfedcba};
  packet.deth = {0x11223344, 0x556677};
  packet.xrceth = {0x89abcd};
  packet.reth = {0x0102030405060708, 0xa1a2a3a4, 0xb1b2b3b4};
  packet.atomic = {0x1112131415161718, 0xc1c2c3c4, 0x2122232425262728, 0x3132333435363738};
  packet.aeth = {0x62, 0x998877};
  packet.atomic_ack = {0x4142434445464748};
  packet.immediate = {0xd1d2d3d4};
  packet.invalidate = {0xe1e2e3e4};
  packet.payload = payload;
  return packet;
}

Bytes written(const Packet& packet) {
  Bytes bytes(kMaxPacket);
  bytes.resize(write(packet, bytes));
  bytes.resize(bytes.size() + kIcrcSize);
  return bytes;
}

TEST(RocePacket, OfEachOpcodeIsReadAsItWasWritten) {
  Bytes payload(7);
  std::iota(payload.begin(), payload.end(), uint8_t{1});
  int known = 0;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo* info = find_opcode(static_cast<uint8_t>(opcode));
    if (info == nullptr) continue;
    ++known;
    for (size_t size : {0, 1, 2, 3, 4, 7}) {
      if (size != 0 && !info->has_payload) continue;
      const Packet packet = packet_of(static_cast<uint8_t>(opcode), {payload.data(), size});
      const Bytes bytes = written(packet);
      ASSERT_EQ(bytes.size(), packet_size(packet) + kIcrcSize);
      Packet read;
      ASSERT_EQ(parse(bytes, &read), Parsed::kPacket) << opcode << " with " << size;
      Bth bth = packet.bth;
      bth.pad = static_cast<uint8_t>(-size & 3);
      EXPECT_EQ(read.bth, bth) << opcode;
      const auto expect = [&](HeaderBit bit, const auto& got, const auto& put) {
        EXPECT_EQ(got, (info->headers & bit) != 0 ? put : std::remove_cvref_t<decltype(put)>{}) << opcode;
      };
      expect(kHasDeth, read.deth, packet.deth);
      expect(kHasXrceth, read.xrceth, packet.xrceth);
      expect(kHasReth, read.reth, packet.reth);
      expect(kHasAtomicEth, read.atomic, packet.atomic);
      expect(kHasAeth, read.aeth, packet.aeth);
      expect(kHasAtomicAckEth, read.atomic_ack, packet.atomic_ack);
      expect(kHasImmDt, read.immediate, packet.immediate);
      expect(kHasIeth, read.invalidate, packet.invalidate);
      EXPECT_TRUE(std::equal(read.payload.begin(), read.payload.end(), payload.begin(),
                             payload.begin() + static_cast<ptrdiff_t>(size)));
    }
  }
  EXPECT_EQ(known, 24 + 12 + 2 + 24 + 1);  // RC, UC, UD, XRC, CNP
}

TEST(RocePacket, HasItsFieldsWhereTheSpecificationHasThem) {
  const uint8_t payload[] = {0xaa};
  const Bytes bytes =
      written(packet_of(opcode_of(TransportKind::kRc, PacketType::kWriteOnlyImmediate), payload));
  const Bytes expected = {0x0b, 0xb0, 0x80, 0x01, 0x40, 0x12, 0x34, 0x56, 0x80, 0xfe, 0xdc, 0xba,  // BTH
                          1,    2,    3,    4,    5,    6,    7,    8,                             // RETH
                          0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4,                          //
                          0xd1, 0xd2, 0xd3, 0xd4,                                                  // ImmDt
                          0xaa, 0,    0,    0,    0,    0,    0,    0};
  EXPECT_EQ(bytes, expected);
}

TEST(RocePacket, ThatIsCutOffIsRefused) {
  const uint8_t payload[] = {1, 2, 3, 4};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo* info = find_opcode(static_cast<uint8_t>(opcode));
    if (info == nullptr) continue;
    const Bytes bytes =
        written(packet_of(static_cast<uint8_t>(opcode), std::span(payload).first(info->has_payload ? 4 : 0)));
    Packet read;
    for (size_t size = 0; size + (info->has_payload ? 4 : 0) < bytes.size(); ++size)
      EXPECT_EQ(parse({bytes.data(), size}, &read), Parsed::kTooShort) << opcode << " of " << size;
  }
}

TEST(RocePacket, ThatContradictsItselfIsRefused) {
  const uint8_t payload[] = {1, 2, 3, 4, 5};
  const Bytes good = written(packet_of(opcode_of(TransportKind::kRc, PacketType::kSendOnly), payload));
  Packet read;
  Bytes bad = good;
  bad[1] |= 1;
  EXPECT_EQ(parse(bad, &read), Parsed::kBadVersion);
  bad = good;
  bad[0] = 0x15;
  EXPECT_EQ(parse(bad, &read), Parsed::kUnknownOpcode);
  bad = good;
  bad.pop_back();
  EXPECT_EQ(parse(bad, &read), Parsed::kBadPadding);
  bad = written(packet_of(opcode_of(TransportKind::kRc, PacketType::kSendOnly), {}));
  bad[1] |= 0x10;
  EXPECT_EQ(parse(bad, &read), Parsed::kBadPadding);
  bad = written(packet_of(opcode_of(TransportKind::kRc, PacketType::kAcknowledge), {}));
  bad.resize(bad.size() + 4);
  EXPECT_EQ(parse(bad, &read), Parsed::kUnexpectedPayload);
}

TEST(RocePacket, DoesNotFitIntoLessThanItsSize) {
  const Packet packet = packet_of(opcode_of(TransportKind::kXrc, PacketType::kFetchAdd), {});
  Bytes bytes(packet_size(packet) - 1);
  EXPECT_EQ(write(packet, bytes), 0u);
  EXPECT_EQ(packet_size(packet_of(0x1f, {})), 0u);
}

TEST(RoceSyndrome, IsBuiltAndTakenApart) {
  EXPECT_EQ(kind_of(ack_syndrome()), SyndromeKind::kAck);
  EXPECT_EQ(kind_of(rnr_syndrome(14)), SyndromeKind::kRnrNak);
  EXPECT_EQ(value_of(rnr_syndrome(14)), 14);
  EXPECT_EQ(nak_syndrome(NakCode::kSequence), 0x60);
  EXPECT_EQ(nak_syndrome(NakCode::kRemoteAccess), 0x62);
  EXPECT_EQ(value_of(nak_syndrome(NakCode::kInvalidRdRequest)), 4);
}

}  // namespace
}  // namespace verbena::roce
