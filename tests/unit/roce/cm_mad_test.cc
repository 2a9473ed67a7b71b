// SPDX-License-Identifier: BSD-2-Clause
#include "roce/cm_mad.h"

#include <gtest/gtest.h>

#include <random>

namespace verbena::roce {
namespace {

using Mad = std::array<uint8_t, kMadSize>;

template <typename Message>
class RoceCmMessage : public testing::Test {};
using Messages =
    testing::Types<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq, CmSidrRep, CmLap, CmApr>;
TYPED_TEST_SUITE(RoceCmMessage, Messages);

TYPED_TEST(RoceCmMessage, IsReadAsItWasWritten) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    uint8_t bytes[kCmMessageSize];
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const CmMad mad{random(), decode<TypeParam>(bytes)};
    Mad written;
    write_cm_mad(mad, written);
    const auto read = parse_cm_mad(written);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->transaction_id, mad.transaction_id);
    EXPECT_EQ(read->message, mad.message);
  }
}

// Each field changes bits of its own: none overlaps another, and none is left out.
TYPED_TEST(RoceCmMessage, KeepsAllBitsThatItNames) {
  uint8_t ones[kCmMessageSize], again[kCmMessageSize];
  std::fill(std::begin(ones), std::end(ones), uint8_t{0xff});
  encode(decode<TypeParam>(ones), again);
  size_t bits = 0, named = 0;
  for (uint8_t byte : again) bits += static_cast<size_t>(std::popcount(byte));
  std::apply([&](const auto&... field) { ((named += field.bits), ...); }, Layout<TypeParam>::kFields);
  EXPECT_EQ(bits, named);
}

TEST(RoceCmMad, HasItsFieldsWhereTheSpecificationHasThem) {
  CmReq req;
  req.local_qpn = 0x123456;
  req.responder_resources = 0x78;
  req.remote_response_timeout = 0x15;
  req.transport_type = 2;
  req.flow_control = true;
  req.path_mtu = 3;
  req.rnr_retry_count = 6;
  req.primary_flow_label = 0xabcde;
  req.primary_packet_rate = 0x3f;
  Mad mad;
  write_cm_mad({0x0102030405060708, req}, mad);
  EXPECT_EQ(mad[1], 7);
  EXPECT_EQ(mad[2], 2);
  EXPECT_EQ(mad[3], 3);
  EXPECT_EQ(mad[8], 1);
  EXPECT_EQ(mad[17], 0x10);
  const uint8_t* const at = mad.data() + 24;
  EXPECT_EQ(at[32], 0x12);
  EXPECT_EQ(at[35], 0x78);
  EXPECT_EQ(at[43], 0x15 << 3 | 2 << 1 | 1);
  EXPECT_EQ(at[50], 3 << 4 | 6);
  EXPECT_EQ(at[88], 0xab);
  EXPECT_EQ(at[90], 0xe0);
  EXPECT_EQ(at[91], 0x3f);
}

TEST(RoceCmMad, OfAnotherKindIsRefused) {
  Mad good;
  write_cm_mad({1, CmRtu{}}, good);
  EXPECT_TRUE(parse_cm_mad(good).has_value());
  EXPECT_FALSE(parse_cm_mad(std::span(good).first(255)).has_value());
  for (size_t at : {0u, 1u, 2u, 3u, 4u, 5u, 16u, 17u}) {
    Mad bad = good;
    bad[at] ^= 0x80;
    EXPECT_FALSE(parse_cm_mad(bad).has_value()) << at;
  }
}

}  // namespace
}  // namespace verbena::roce
