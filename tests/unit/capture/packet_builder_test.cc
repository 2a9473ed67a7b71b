// SPDX-License-Identifier: BSD-2-Clause
//
// Packets are made of records, wherever the pieces of a message were cut, and however much of each packet was
// kept.
#include "capture/packet_builder.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "capture/packet_text.h"
#include "emulator.h"

namespace verbena::capture {
namespace {

using record::MessageRecord;

struct Seen {
  uint8_t opcode;
  uint32_t psn;
  std::vector<uint8_t> payload;
  uint32_t captured, length;
};

class PacketBuilderTest : public testing::Test {
 protected:
  std::vector<uint8_t> message(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    return bytes;
  }

  MessageRecord record(uint8_t opcode, uint32_t length, uint32_t mtu, uint32_t snap) {
    MessageRecord record;
    record.head.kind = record::Kind::kMessage;
    record.route.source = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    record.route.destination = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
    record.source_qpn = 0x11;
    record.target_qpn = 0x12;
    record.psn = 0xfffffe;  // it wraps
    record.length = length;
    record.mtu = mtu;
    record.snap = snap;
    record.transport = IBV_QPT_RC;
    record.opcode = opcode;
    return record;
  }

  // Gives bytes [from, to) of the message.
  void give(MessageRecord record, const std::vector<uint8_t>& message, uint32_t from, uint32_t to) {
    record.offset = from;
    record.end = to;
    record.reply = to == record.length ? Reply::kAcknowledged : Reply::kMore;
    std::vector<std::byte> bytes(sizeof record);
    record.kept = record::for_each_kept(from, to, record.mtu, record.snap, [&](uint32_t at, uint32_t size) {
      const auto* const begin = reinterpret_cast<const std::byte*>(message.data()) + at;
      bytes.insert(bytes.end(), begin, begin + size);
    });
    std::memcpy(bytes.data(), &record, sizeof record);
    builder_.take(0, bytes);
  }

  std::mt19937 random_{1};
  DeviceTable devices_{};
  std::vector<Seen> seen_;
  std::vector<std::vector<uint8_t>> frames_;  // of raw packet queue pairs
  std::vector<std::string> texts_;
  PacketBuilder builder_{devices_, UINT32_MAX, [this](const CapturedPacket& packet) {
                           if (packet.packet == nullptr) {
                             frames_.emplace_back(packet.frame.begin(), packet.frame.end());
                             texts_.push_back(packet_text(packet));
                             return;
                           }
                           seen_.push_back({packet.packet->bth.opcode,
                                            packet.packet->bth.psn,
                                            {packet.packet->payload.begin(), packet.packet->payload.end()},
                                            static_cast<uint32_t>(packet.frame.size()),
                                            packet.length});
                         }};
};

TEST_F(PacketBuilderTest, ShowsAFrameAsItIs) {
  std::vector<uint8_t> frame = message(60);
  const uint8_t header[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6};
  std::copy(std::begin(header), std::end(header), frame.begin());
  record::FrameRecord record;
  record.head.kind = record::Kind::kFrame;
  record.length = 60;
  for (const uint32_t kept : {60u, 20u, 10u}) {
    record.kept = kept;
    std::vector<std::byte> bytes(sizeof record + kept);
    std::memcpy(bytes.data(), &record, sizeof record);
    std::memcpy(bytes.data() + sizeof record, frame.data(), kept);
    builder_.take(0, bytes);
    ASSERT_FALSE(frames_.empty());
    EXPECT_EQ(frames_.back(), std::vector<uint8_t>(frame.begin(), frame.begin() + kept));
  }
  EXPECT_EQ(texts_,
            (std::vector<std::string>{"02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff Ethernet, type 0x0806, 60 bytes",
                                      "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff Ethernet, type 0x0806, 60 bytes",
                                      "Ethernet 60 bytes"}));
}

TEST_F(PacketBuilderTest, ShowsNoFrameThatIsNone) {
  record::FrameRecord record;
  record.head.kind = record::Kind::kFrame;
  std::vector<std::byte> bytes(sizeof record + 8);
  for (const auto& [length, kept] : {std::pair(60u, 9u), std::pair(4u, 8u), std::pair(UINT32_MAX, 8u)}) {
    record.length = length;
    record.kept = kept;
    std::memcpy(bytes.data(), &record, sizeof record);
    builder_.take(0, bytes);
  }
  builder_.take(0, std::span(bytes).first(sizeof record - 1));
  EXPECT_TRUE(frames_.empty());
}

TEST_F(PacketBuilderTest, JoinsPieces) {
  for (int round = 0; round < 300; ++round) {
    const uint32_t mtu = 256u << random_() % 5, size = 1 + random_() % 20000;
    const std::vector<uint8_t> bytes = message(size);
    const MessageRecord of = record(random_() % 2 == 0 ? IBV_WR_SEND : IBV_WR_RDMA_READ, size, mtu, mtu);
    seen_.clear();
    for (uint32_t at = 0; at < size;) {
      const uint32_t to = std::min<uint32_t>(size, at + 1 + random_() % 5000);
      give(of, bytes, at, to);
      at = to;
    }
    std::vector<uint8_t> joined;
    uint32_t psn = 0xfffffe, packets = 0;
    for (const Seen& packet : seen_) {
      EXPECT_EQ(packet.captured, packet.length);
      if (packet.payload.empty()) continue;  // the request of a READ, or the acknowledgement of a SEND
      EXPECT_EQ(packet.psn, psn);
      psn = (psn + 1) & 0xffffff;
      ++packets;
      joined.insert(joined.end(), packet.payload.begin(), packet.payload.end());
    }
    ASSERT_EQ(joined, bytes);
    EXPECT_EQ(packets, (size + mtu - 1) / mtu);
  }
  EXPECT_EQ(builder_.incomplete(), 0u);
}

TEST_F(PacketBuilderTest, KeepsTheBeginningOfEachPacket) {
  const std::vector<uint8_t> bytes = message(5000);
  const MessageRecord of = record(IBV_WR_SEND, 5000, 1024, 100);
  give(of, bytes, 0, 1500);
  give(of, bytes, 1500, 3000);
  give(of, bytes, 3000, 5000);
  ASSERT_EQ(seen_.size(), 6u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(std::memcmp(seen_[i].payload.data(), &bytes[i * 1024], 100), 0) << i;
    EXPECT_EQ(seen_[i].captured, 54u + 100) << i;
  }
}

TEST_F(PacketBuilderTest, ShowsAnAtomicWriteAsItself) {
  const std::vector<uint8_t> bytes = message(8);
  give(record(static_cast<uint8_t>(kAtomicWrite), 8, 1024, 1024), bytes, 0, 8);
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0].opcode, 0x1d);  // drivers/infiniband/sw/rxe/rxe_opcode.c
  EXPECT_EQ(seen_[0].payload, bytes);
  EXPECT_EQ(seen_[0].length, 14u + 20 + 8 + 12 + 16 + 8 + 4);  // Ethernet, IPv4, UDP, BTH, RETH, bytes, ICRC
  EXPECT_EQ(seen_[1].opcode, 0x10);
  EXPECT_TRUE(seen_[1].payload.empty());
  EXPECT_EQ(seen_[1].psn, seen_[0].psn);
}

TEST_F(PacketBuilderTest, CountsWhatCannotBeMade) {
  const std::vector<uint8_t> bytes = message(5000);
  const MessageRecord of = record(IBV_WR_SEND, 5000, 1024, 1024);
  give(of, bytes, 1500, 5000);  // what came before is lost
  EXPECT_EQ(builder_.incomplete(), 1u);
  EXPECT_EQ(seen_.size(), 4u);
}

TEST_F(PacketBuilderTest, TakesNothingThatCannotBe) {
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(sizeof(MessageRecord) + random_() % 300);
    MessageRecord of = record(static_cast<uint8_t>(random_() % 16), random_() % 300, 256, 256);
    of.end = of.length;
    of.kept = of.length;
    of.reply = static_cast<Reply>(random_() % 9);
    std::memcpy(bytes.data(), &of, sizeof of);
    for (int i = 0; i < 3; ++i) bytes[random_() % sizeof of] = static_cast<std::byte>(random_());
    builder_.take(0, bytes);
  }
}

}  // namespace
}  // namespace verbena::capture
