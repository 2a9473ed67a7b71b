// SPDX-License-Identifier: BSD-2-Clause
#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace verbena::wire {
namespace {

RequestHead request(uint32_t bytes, uint32_t offset, uint32_t size) {
  RequestHead head{};
  head.length = static_cast<uint32_t>(sizeof head) + bytes;
  head.kind = FrameKind::kRequest;
  head.target_qpn = 0x123456;
  head.source_qpn = 0xfffffe;
  head.size = size;
  head.offset = offset;
  return head;
}

template <typename Head>
Decoded decode_head(const Head& head, Frame* frame, size_t available = sizeof(Head)) {
  std::vector<std::byte> bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes.resize(available);
  return decode(bytes.data(), bytes.size(), frame);
}

TEST(Frames, AreKnownByTheirHeads) {
  Frame frame;
  ASSERT_EQ(decode_head(request(100, 200, 300), &frame), Decoded::kFrame);
  EXPECT_EQ(frame.head_size, sizeof(RequestHead));
  EXPECT_EQ(frame.payload, 100u);
  EXPECT_EQ(frame.head.request.source_qpn, 0xfffffeu);
}

TEST(Frames, WaitForTheirWholeHead) {
  Frame frame;
  for (size_t available = 0; available < sizeof(RequestHead); ++available)
    ASSERT_EQ(decode_head(request(0, 0, 0), &frame, available), Decoded::kIncomplete) << available;
}

TEST(Frames, WithBytesOutsideTheirMessageAreNone) {
  const struct {
    uint32_t bytes, offset, size;
  } kWrong[] = {{101, 200, 300},    {1, 300, 300},           {0, 301, 300},
                {2, UINT32_MAX, 1}, {0, 0, kMaxMessage + 1}, {kChunkBytes + 1, 0, kMaxMessage}};
  Frame frame;
  for (const auto& wrong : kWrong)
    EXPECT_EQ(decode_head(request(wrong.bytes, wrong.offset, wrong.size), &frame), Decoded::kMalformed)
        << wrong.bytes << " at " << wrong.offset << " of " << wrong.size;
}

TEST(Frames, OfUnknownKindsAndImpossibleLengthsAreNone) {
  Frame frame;
  for (unsigned kind : {0u, 12u, 255u}) {
    RequestHead head = request(0, 0, 0);
    head.kind = static_cast<FrameKind>(kind);
    EXPECT_EQ(decode_head(head, &frame), Decoded::kMalformed) << kind;
  }
  for (unsigned kind = 1; kind <= 11; ++kind)
    for (const uint32_t length : {0u, 15u, UINT32_MAX}) {
      RequestHead head = request(0, 0, 0);
      head.kind = static_cast<FrameKind>(kind);
      head.length = length;
      EXPECT_EQ(decode_head(head, &frame), Decoded::kMalformed) << kind << " " << length;
    }
}

TEST(Frames, OfDatagramsHaveRoomForTheGrh) {
  Frame frame;
  DatagramHead head{};
  head.kind = FrameKind::kDatagram;
  head.length = sizeof head + 39;
  EXPECT_EQ(decode_head(head, &frame), Decoded::kMalformed);
  head.length = sizeof head + 40;
  EXPECT_EQ(decode_head(head, &frame), Decoded::kFrame);
  head.length = sizeof head + kMaxDatagram + 1;
  EXPECT_EQ(decode_head(head, &frame), Decoded::kMalformed);
}

TEST(Frames, OfQueuePairNumbersBeyond24BitsAreNone) {
  Frame frame;
  RequestHead head = request(0, 0, 0);
  head.target_qpn = 1u << 24;
  EXPECT_EQ(decode_head(head, &frame), Decoded::kMalformed);
}

}  // namespace
}  // namespace verbena::wire
