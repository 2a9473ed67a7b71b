// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/frame_checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace verbena {
namespace {

using Bytes = std::vector<uint8_t>;

// The header of RFC 1071's practice, with its known checksum 0xb861: 45 00 00 73 00 00 40 00 40 11 b8 61 c0
// a8 00 01 c0 a8 00 c7. The total length, 115, is that of a UDP datagram of 87 bytes.
Bytes udp_frame() {
  Bytes out(14, 0x02);
  out[12] = 0x08;
  out[13] = 0x00;
  const uint8_t ip[] = {0x45, 0, 0,    0x73, 0, 0, 0x40, 0,    0x40, 0x11,
                        0,    0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,    0xc7};
  out.insert(out.end(), std::begin(ip), std::end(ip));
  const uint8_t udp[] = {0x12, 0x34, 0, 53, 0, 95, 0xaa, 0xaa};
  out.insert(out.end(), std::begin(udp), std::end(udp));
  for (uint8_t i = 0; i < 87; ++i) out.push_back(static_cast<uint8_t>(i * 3));
  return out;
}

constexpr size_t kIp = 14, kIpSum = kIp + 10, kUdp = 34, kUdpSum = kUdp + 6;

Bytes filled(Bytes frame) {
  fill_in_checksums(frame.data(), static_cast<uint32_t>(frame.size()));
  return frame;
}
bool is_right(const Bytes& frame) {
  return are_checksums_right(frame.data(), static_cast<uint32_t>(frame.size()));
}
Bytes with(Bytes frame, size_t at, uint8_t byte) {
  frame[at] = byte;
  return frame;
}

TEST(FrameChecksumTest, HeaderHasItsKnownChecksum) {
  const Bytes frame = filled(udp_frame());
  EXPECT_EQ(frame[kIpSum], 0xb8);
  EXPECT_EQ(frame[kIpSum + 1], 0x61);
}

TEST(FrameChecksumTest, ChangesNothingElse) {
  Bytes frame = filled(udp_frame()), before = udp_frame();
  for (const size_t at : {kIpSum, kIpSum + 1, kUdpSum, kUdpSum + 1}) frame[at] = before[at] = 0;
  EXPECT_EQ(frame, before);
}

TEST(FrameChecksumTest, WhatWasFilledInIsRight) {
  const Bytes frame = filled(udp_frame());
  EXPECT_TRUE(is_right(frame));
  EXPECT_FALSE(is_right(udp_frame()));
  for (const size_t at : {kIp + 8, kIpSum, kUdp, kUdpSum, frame.size() - 1})
    EXPECT_FALSE(is_right(with(frame, at, static_cast<uint8_t>(frame[at] ^ 4)))) << at;
}

TEST(FrameChecksumTest, PaddingDoesNotCount) {
  Bytes frame = filled(udp_frame());
  frame.insert(frame.end(), 9, 0xee);
  EXPECT_TRUE(is_right(frame));
  EXPECT_EQ(filled(frame), frame);
}

TEST(FrameChecksumTest, TagsAreSkipped) {
  Bytes frame = udp_frame();
  const uint8_t tags[] = {0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 7};
  frame.insert(frame.begin() + 12, std::begin(tags), std::end(tags));
  EXPECT_TRUE(is_right(filled(frame)));
}

TEST(FrameChecksumTest, TcpHasItsOwnPlace) {
  Bytes frame = with(udp_frame(), kIp + 9, 6);
  const Bytes out = filled(frame);
  EXPECT_TRUE(is_right(out));
  EXPECT_EQ(out[kUdpSum], frame[kUdpSum]) << "bytes of TCP's sequence number";
  EXPECT_FALSE(is_right(with(out, kUdp + 16, static_cast<uint8_t>(out[kUdp + 16] ^ 1))));
}

TEST(FrameChecksumTest, NoChecksumIsNotARightOne) {
  Bytes frame = filled(udp_frame());
  frame[kUdpSum] = frame[kUdpSum + 1] = 0;
  EXPECT_FALSE(is_right(frame));
}

// A sum of 0 is sent as all ones: 0 says that there is none (RFC 768).
TEST(FrameChecksumTest, UdpNeverHasZero) {
  Bytes frame = filled(udp_frame());
  const unsigned sum = frame[kUdpSum] << 8 | frame[kUdpSum + 1];
  // The checksum becomes 0 where the last word before the odd end takes in what it was.
  const unsigned word = (frame[kUdp + 8] << 8 | frame[kUdp + 9]) + sum;
  const unsigned folded = (word & 0xffff) + (word >> 16);
  frame[kUdp + 8] = static_cast<uint8_t>(folded >> 8);
  frame[kUdp + 9] = static_cast<uint8_t>(folded);
  frame = filled(frame);
  EXPECT_EQ(frame[kUdpSum], 0xff);
  EXPECT_EQ(frame[kUdpSum + 1], 0xff);
  EXPECT_TRUE(is_right(frame));
}

// Of a fragment nobody knows the whole datagram.
TEST(FrameChecksumTest, FragmentsHaveAHeader) {
  const Bytes frame = with(udp_frame(), kIp + 6, 0x20), out = filled(frame);
  EXPECT_NE(out[kIpSum], 0);
  EXPECT_EQ(out[kUdpSum], frame[kUdpSum]);
  EXPECT_FALSE(is_right(out));
}

TEST(FrameChecksumTest, Ipv6HasNoHeaderChecksum) {
  Bytes frame(14, 0x02);
  frame[12] = 0x86;
  frame[13] = 0xdd;
  const uint8_t ip[] = {0x60, 0, 0, 0, 0, 16, 17, 64};
  frame.insert(frame.end(), std::begin(ip), std::end(ip));
  for (uint8_t i = 0; i < 32; ++i) frame.push_back(i);
  const uint8_t udp[] = {0, 9, 0, 9, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  frame.insert(frame.end(), std::begin(udp), std::end(udp));
  const Bytes out = filled(frame);
  uint32_t sum = 17 + 16;
  for (size_t i = 22; i < out.size(); i += 2) sum += static_cast<uint32_t>(out[i] << 8 | out[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  EXPECT_EQ(sum, 0xffffu);
  EXPECT_FALSE(is_right(out)) << "IBV_WC_IP_CSUM_OK is of IPv4";
}

// Whatever the lengths say, no byte behind the frame is read or written (run with the address sanitizer).
TEST(FrameChecksumTest, LengthsAreNotTrusted) {
  const Bytes whole = udp_frame();
  for (size_t size = 0; size < whole.size(); ++size) {
    const Bytes frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(filled(frame), frame) << size << " bytes are no packet";
    EXPECT_FALSE(is_right(frame));
  }
  for (const auto& [at, byte] : {std::pair<size_t, uint8_t>{kIp, 0x44},
                                 {kIp, 0x65},
                                 {kIp + 2, 0xff},
                                 {kIp + 3, 10},
                                 {kIp + 3, 21}})
    EXPECT_FALSE(is_right(filled(with(whole, at, byte)))) << at;
}

}  // namespace
}  // namespace verbena
