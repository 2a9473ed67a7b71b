// SPDX-License-Identifier: BSD-2-Clause
//
// Messages as bytes: what is encoded is decoded again, and nothing else is accepted.
#include <gtest/gtest.h>

#include <random>

#include "cm/message.h"
#include "cm/message_fields.h"

namespace verbena::cm {
namespace {

constexpr MessageKind kKinds[] = {
    MessageKind::kReq,  MessageKind::kMra,  MessageKind::kRej,     MessageKind::kRep,     MessageKind::kRtu,
    MessageKind::kDreq, MessageKind::kDrep, MessageKind::kSidrReq, MessageKind::kSidrRep,
};

// A message with something different in each field.
Message sample(MessageKind kind, uint32_t seed) {
  std::mt19937_64 random(seed);
  Message m;
  m.kind = kind;
  m.source[15] = 1;
  m.destination[15] = 2;
  const MessageLayout* layout = layout_of(kind);
  for (const FieldPlace& place : layout->fields)
    m[place.field] = place.min + random() % (place.max - place.min + 1 ?: ~0ull);
  for (const BytesPlace& place : layout->bytes)
    for (size_t i = 0; i < place.size; ++i) place.bytes(m)[i] = static_cast<uint8_t>(random());
  if (kind == MessageKind::kReq) {
    m[Field::kTransportType] = seed % 2 ? 3 : 1;
    m[Field::kExtendedTransportType] = seed % 2;
  }
  return m;
}

bool decodes(const Frame& frame) {
  Message m;
  return decode(frame, &m);
}

struct Messages : ::testing::TestWithParam<MessageKind> {};

TEST_P(Messages, AreReadAsTheyWereWritten) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Message written = sample(GetParam(), seed);
    Frame frame;
    encode(written, frame);
    Message read;
    ASSERT_TRUE(decode(frame, &read));
    EXPECT_EQ(read.kind, written.kind);
    EXPECT_EQ(read.fields, written.fields);
    EXPECT_EQ(read.source, written.source);
    EXPECT_EQ(read.destination, written.destination);
    EXPECT_EQ(read.primary_local, written.primary_local);
    EXPECT_EQ(read.alternate_remote, written.alternate_remote);
    EXPECT_EQ(read.info, written.info);
    EXPECT_EQ(read.private_data, written.private_data);
  }
}

TEST_P(Messages, HaveTheirFieldsSideBySide) {
  std::array<int, kMadSize * 8> owners{};
  const MessageLayout* layout = layout_of(GetParam());
  for (const FieldPlace& place : layout->fields)
    for (unsigned bit = 0; bit < place.width; ++bit) ++owners[place.byte * 8u + place.bit + bit];
  for (const BytesPlace& place : layout->bytes)
    for (unsigned bit = 0; bit < place.size * 8u; ++bit) ++owners.at(place.byte * 8u + bit);
  for (size_t bit = 0; bit < owners.size(); ++bit) EXPECT_LE(owners[bit], 1) << "byte " << bit / 8;
}

TEST_P(Messages, WithAFieldOutOfRangeAreRefused) {
  for (const FieldPlace& place : layout_of(GetParam())->fields) {
    const uint64_t most = place.width == 64 ? ~uint64_t{0} : (uint64_t{1} << place.width) - 1;
    Frame frame;
    Message m = sample(GetParam(), 1);
    if (place.max < most) {
      m[place.field] = place.max + 1;
      encode(m, frame);
      EXPECT_FALSE(decodes(frame)) << "field " << static_cast<int>(place.field);
    }
    if (place.min > 0) {
      m[place.field] = place.min - 1;
      encode(m, frame);
      EXPECT_FALSE(decodes(frame)) << "field " << static_cast<int>(place.field);
    }
  }
}

TEST_P(Messages, WithBitsOutsideOfTheirFieldsAreRefused) {
  std::array<bool, kFrameSize * 8> taken{};
  const MessageLayout* layout = layout_of(GetParam());
  for (const FieldPlace& place : layout->fields)
    for (unsigned bit = 0; bit < place.width; ++bit)
      taken[(kFrameHead + place.byte) * 8 + place.bit + bit] = true;
  for (const BytesPlace& place : layout->bytes)
    for (unsigned bit = 0; bit < place.size * 8u; ++bit) taken[(kFrameHead + place.byte) * 8 + bit] = true;
  for (size_t bit = 8 * 8; bit < kFrameHead * 8; ++bit) taken[bit] = true;  // the GIDs
  Frame good;
  encode(sample(GetParam(), 2), good);
  for (size_t bit = 0; bit < taken.size(); ++bit) {
    if (taken[bit]) continue;
    Frame bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(0x80 >> bit % 8);
    Message m;
    const bool other_kind = decode(bad, &m) && m.kind != GetParam();  // RTU and DREP differ in one bit
    EXPECT_TRUE(other_kind || !decodes(bad)) << "byte " << bit / 8 << " bit " << bit % 8;
  }
}

TEST_P(Messages, OfAnotherLengthAreRefused) {
  Frame frame;
  encode(sample(GetParam(), 3), frame);
  Message m;
  for (size_t size : {size_t{0}, size_t{1}, kFrameHead, kFrameSize - 1})
    EXPECT_FALSE(decode(std::span(frame).first(size), &m)) << size;
  std::array<uint8_t, kFrameSize + 1> longer{};
  std::copy(frame.begin(), frame.end(), longer.begin());
  EXPECT_FALSE(decode(longer, &m));
}

INSTANTIATE_TEST_SUITE_P(Each, Messages, ::testing::ValuesIn(kKinds));

TEST(Message, OfAnUnknownKindIsRefused) {
  Frame frame;
  Message m;
  m.kind = static_cast<MessageKind>(0x19);  // LAP
  encode(m, frame);
  EXPECT_FALSE(decodes(frame));
}

TEST(Message, WhoseTransportTypesDisagreeIsRefused) {
  for (const auto& [transport, extended] : {std::pair{2, 0}, {3, 0}, {0, 1}, {1, 1}}) {
    Message m = sample(MessageKind::kReq, 4);
    m[Field::kTransportType] = static_cast<uint64_t>(transport);
    m[Field::kExtendedTransportType] = static_cast<uint64_t>(extended);
    Frame frame;
    encode(m, frame);
    EXPECT_FALSE(decodes(frame)) << transport << ", " << extended;
  }
}

TEST(Message, LiesInTheFrameAsInfiniBandHasIt) {
  Message m;
  m.kind = MessageKind::kReq;
  m[Field::kServiceId] = 0x0000000001061b39;
  m[Field::kQpn] = 0x123456;
  m[Field::kResponderResources] = 0x0f;
  m[Field::kMtu] = 3;
  m[Field::kSrq] = 1;
  Frame frame;
  encode(m, frame);
  const uint8_t* body = frame.data() + kFrameHead + kMadHead;
  EXPECT_EQ(body[14], 0x1b);
  EXPECT_EQ(body[15], 0x39);
  EXPECT_EQ(body[32], 0x12);
  EXPECT_EQ(body[34], 0x56);
  EXPECT_EQ(body[35], 0x0f);
  EXPECT_EQ(body[50], 0x30);
  EXPECT_EQ(body[51], 0x08);
}

}  // namespace
}  // namespace verbena::cm
