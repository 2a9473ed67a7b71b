// SPDX-License-Identifier: BSD-2-Clause
//
// IBV_SEND_IP_CSUM and IBV_WC_IP_CSUM_OK through the verbs.
#include "flow_fixture.h"

namespace verbena::test {
namespace {

// UDP over IPv4; the fixture's header says 60 bytes.
Frame packet(uint8_t to) {
  Frame frame(mac(to), mac(9));
  frame.ipv4("192.0.2.1", "192.0.2.2", IPPROTO_UDP).ports(4000, 9);
  const uint8_t rest[] = {0, 40, 0x11, 0x22};
  frame.bytes.insert(frame.bytes.end(), std::begin(rest), std::end(rest));
  return frame.payload(32);
}

class ChecksumTest : public FlowTest {
 protected:
  void SetUp() override {
    FlowTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    port_ = make_port();
    flow_ = make_flow(port_, Rule().to(mac(1)));
  }
  struct Seen {
    std::vector<uint8_t> bytes;
    unsigned flags;
  };
  Seen sent(const Frame& frame, unsigned flags) {
    EXPECT_EQ(send(frame, flags), IBV_WC_SUCCESS);
    const ibv_wc wc = next_completion(port_.cq.get());
    const uint8_t* const at = port_.buffer.data() + wc.wr_id % kReceives * kSlot;
    Seen out{{at, at + wc.byte_len}, wc.wc_flags};
    post(port_, wc.wr_id);
    return out;
  }

  Port port_;
  Flow flow_;
};

TEST_F(ChecksumTest, IsClaimed) {
  ibv_device_attr_ex seen = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &seen), 0);
  EXPECT_EQ(seen.raw_packet_caps, unsigned{IBV_RAW_PACKET_CAP_IP_CSUM});
  EXPECT_NE(seen.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM, 0u);
}

TEST_F(ChecksumTest, IsFilledInAndFoundRight) {
  const Frame frame = packet(1);
  const Seen seen = sent(frame, IBV_SEND_IP_CSUM);
  EXPECT_NE(seen.bytes, frame.bytes);
  EXPECT_EQ(seen.bytes.size(), frame.bytes.size());
  EXPECT_EQ(seen.flags, unsigned{IBV_WC_IP_CSUM_OK});
  EXPECT_EQ(memcmp(sender_.buffer.data() + kSlot * kReceives, frame.bytes.data(), frame.bytes.size()), 0)
      << "the program's own bytes have changed";
}

TEST_F(ChecksumTest, IsLeftAloneOtherwise) {
  const Frame frame = packet(1);
  const Seen seen = sent(frame, 0);
  EXPECT_EQ(seen.bytes, frame.bytes);
  EXPECT_EQ(seen.flags, 0u);
}

TEST_F(ChecksumTest, WhatIsNoPacketStaysAsItIs) {
  const Frame frame = Frame(mac(1), mac(9)).type(0x88b5).payload(50);
  const Seen seen = sent(frame, IBV_SEND_IP_CSUM);
  EXPECT_EQ(seen.bytes, frame.bytes);
  EXPECT_EQ(seen.flags, 0u);
}

}  // namespace
}  // namespace verbena::test
