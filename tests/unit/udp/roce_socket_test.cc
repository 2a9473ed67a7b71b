// SPDX-License-Identifier: BSD-2-Clause
#include "udp/roce_socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "roce/icrc.h"

namespace verbena::udp {
namespace {

using wire::NetAddress;

NetAddress address_of(const std::string& text) {
  NetAddress address;
  EXPECT_TRUE(NetAddress::from_text(text, &address)) << text;
  return address;
}

std::vector<uint8_t> datagram_of(size_t size) {
  std::vector<uint8_t> datagram(size);
  for (size_t at = 0; at < size; ++at) datagram[at] = static_cast<uint8_t>(at * 7 + 1);
  return datagram;
}

// What arrives within 5 s.
Arrival next(const RoceSocket& socket, PacketBuffer& buffer, ReceivedPacket* out) {
  pollfd waiting{socket.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 5000), 1);
  return socket.receive(buffer, out);
}

int option_of(const RoceSocket& socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(getsockopt(socket.fd(), level, option, &value, &length), 0);
  return value;
}

// Sends as it stands, without a new ICRC.
void send_raw(const RoceSocket& from, const UdpEnd& to, const std::vector<uint8_t>& bytes) {
  sockaddr_storage at;
  const socklen_t length = to.address.to_socket_address(to.port, &at);
  ASSERT_EQ(sendto(from.fd(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&at), length),
            static_cast<ssize_t>(bytes.size()));
}

class RoceSocketOverLoopback : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string problem;
    ASSERT_EQ(a_.open(address_of(GetParam()), 0, &problem), 0) << problem;
    ASSERT_EQ(b_.open(address_of(GetParam()), 0, &problem), 0) << problem;
  }

  RoceSocket a_;
  RoceSocket b_;
  PacketBuffer buffer_;
  ReceivedPacket packet_;
};

INSTANTIATE_TEST_SUITE_P(Ip, RoceSocketOverLoopback, testing::Values("127.0.0.1", "::1"),
                         [](const auto& tested) { return tested.index == 0 ? "V4" : "V6"; });

TEST_P(RoceSocketOverLoopback, PacketsOfEachLengthArriveWithTheirIcrcAndSender) {
  for (const size_t size : {size_t{16}, size_t{20}, size_t{1040}, roce::kMaxPacket}) {
    auto sent = datagram_of(size);
    ASSERT_EQ(a_.send(b_.own(), {}, sent), 0);
    ASSERT_EQ(next(b_, buffer_, &packet_), Arrival::kPacket) << size;
    EXPECT_EQ(std::vector<uint8_t>(packet_.datagram.begin(), packet_.datagram.end()), sent);
    EXPECT_EQ(packet_.from.address, a_.own().address);
    EXPECT_EQ(packet_.from.port, a_.own().port);
  }
  EXPECT_EQ(b_.receive(buffer_, &packet_), Arrival::kNothing);
}

TEST_P(RoceSocketOverLoopback, DamagedPacketsAreDropped) {
  auto sent = datagram_of(64);
  ASSERT_EQ(a_.send(b_.own(), {}, sent), 0);
  ASSERT_EQ(next(b_, buffer_, &packet_), Arrival::kPacket);
  for (size_t at = 0; at < sent.size(); ++at) {
    if (at == 4) continue;  // FECN and BECN change on the way
    auto damaged = sent;
    damaged[at] ^= 0x10;
    send_raw(a_, b_.own(), damaged);
    EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kDamaged) << at;
  }
}

// As after a translation of addresses: the ICRC is for another destination port.
TEST_P(RoceSocketOverLoopback, PacketsMadeForAnotherPortAreDropped) {
  auto sent = datagram_of(64);
  const auto packet = std::span<const uint8_t>(sent).first(60);
  const auto other = static_cast<uint16_t>(b_.own().port ^ 1);
  if (a_.own().address.is_ipv4()) {
    const roce::Ipv4Flow flow{{127, 0, 0, 1}, {127, 0, 0, 1}, a_.own().port, other, 0, true};
    roce::put_icrc(&sent[60], roce::icrc(flow, packet));
  } else {
    const roce::Ipv6Flow flow{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                              {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                              a_.own().port,
                              other};
    roce::put_icrc(&sent[60], roce::icrc(flow, packet));
  }
  send_raw(a_, b_.own(), sent);
  EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kDamaged);
}

TEST_P(RoceSocketOverLoopback, DatagramsThatAreNoPacketsAreDropped) {
  send_raw(a_, b_.own(), {});
  EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kTooShort);
  send_raw(a_, b_.own(), datagram_of(15));
  EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kTooShort);
  send_raw(a_, b_.own(), datagram_of(roce::kMaxPacket + 1));
  EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kTooLong);
  send_raw(a_, b_.own(), datagram_of(9000));
  EXPECT_EQ(next(b_, buffer_, &packet_), Arrival::kTooLong);
}

TEST_P(RoceSocketOverLoopback, WhatCannotBeAPacketIsNotSent) {
  auto longer = datagram_of(roce::kMaxPacket + 1);
  EXPECT_EQ(a_.send(b_.own(), {}, longer), EMSGSIZE);
  auto shorter = datagram_of(15);
  EXPECT_EQ(a_.send(b_.own(), {}, shorter), EINVAL);
  auto packet = datagram_of(64);
  EXPECT_EQ(a_.send({address_of(a_.own().address.is_ipv4() ? "::1" : "127.0.0.1"), 4791}, {}, packet),
            EINVAL);
  EXPECT_EQ(b_.receive(buffer_, &packet_), Arrival::kNothing);
}

TEST_P(RoceSocketOverLoopback, APortBelongsToOneSocket) {
  RoceSocket second;
  std::string problem;
  EXPECT_EQ(second.open(a_.own().address, a_.own().port, &problem), EADDRINUSE);
  EXPECT_EQ(second.fd(), -1);
  EXPECT_EQ(problem, "RoCE v2 at " + a_.own().address.text(a_.own().port) +
                         ": another process, or the kernel's rxe, has this UDP port");
}

TEST_P(RoceSocketOverLoopback, TheKernelIsToldNotToFragment) {
  if (a_.own().address.is_ipv4()) {
    EXPECT_EQ(option_of(a_, IPPROTO_IP, IP_MTU_DISCOVER), IP_PMTUDISC_DO);
  } else {
    EXPECT_EQ(option_of(a_, IPPROTO_IPV6, IPV6_MTU_DISCOVER), IPV6_PMTUDISC_DO);
  }
}

// ---- several at once ----

// What arrives within 5 s.
Arrival next(const RoceSocket& socket, ReceiveBatch& batch, ReceivedPacket* out) {
  if (batch.is_empty()) {
    pollfd waiting{socket.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 5000), 1);
  }
  return socket.receive(batch, out);
}

std::vector<std::vector<uint8_t>> datagrams_of(const std::vector<size_t>& sizes) {
  std::vector<std::vector<uint8_t>> all;
  for (const size_t size : sizes) {
    all.push_back(datagram_of(size));
    all.back()[12] = static_cast<uint8_t>(all.size());
  }
  return all;
}

std::vector<std::span<uint8_t>> spans_of(std::vector<std::vector<uint8_t>>& datagrams) {
  return {datagrams.begin(), datagrams.end()};
}

const std::vector<std::vector<size_t>> kShapes = {
    {16, 16},
    {24, 20},  // a request and an acknowledgement
    std::vector<size_t>(64, 80),
    std::vector<size_t>(150, 28),
    {4128, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 4112, 2000},
    std::vector<size_t>(40, roce::kMaxPacket),
    {1040, 1040, 500, 500, 1040, 16, 20, 24, 24, 24},
};

TEST_P(RoceSocketOverLoopback, SeveralPacketsArriveInOrderWithTheirIcrc) {
  b_.receive_in_batches();
  ReceiveBatch batch;
  for (const auto& shape : kShapes) {
    auto sent = datagrams_of(shape);
    size_t count = 0;
    ASSERT_EQ(a_.send(b_.own(), {}, spans_of(sent), &count), 0);
    ASSERT_EQ(count, sent.size());
    for (const auto& each : sent) {
      ASSERT_EQ(next(b_, batch, &packet_), Arrival::kPacket);
      ASSERT_EQ(std::vector<uint8_t>(packet_.datagram.begin(), packet_.datagram.end()), each);
      EXPECT_EQ(packet_.from.address, a_.own().address);
      EXPECT_EQ(packet_.from.port, a_.own().port);
      EXPECT_FALSE(packet_.ip.is_congested());
    }
    EXPECT_TRUE(batch.is_empty());
  }
  EXPECT_EQ(b_.receive(batch, &packet_), Arrival::kNothing);
}

// As another adapter or rxe takes them: one by one.
TEST_P(RoceSocketOverLoopback, PacketsSentTogetherAreWholePacketsForOthers) {
  for (const auto& shape : kShapes) {
    auto sent = datagrams_of(shape);
    size_t count = 0;
    ASSERT_EQ(a_.send(b_.own(), {}, spans_of(sent), &count), 0);
    for (const auto& each : sent) {
      ASSERT_EQ(next(b_, buffer_, &packet_), Arrival::kPacket);
      ASSERT_EQ(std::vector<uint8_t>(packet_.datagram.begin(), packet_.datagram.end()), each);
    }
  }
}

TEST_P(RoceSocketOverLoopback, OfSeveralPacketsADamagedOneIsDropped) {
  b_.receive_in_batches();
  ReceiveBatch batch;
  auto sent = datagrams_of({64, 64, 64});
  size_t count = 0;
  ASSERT_EQ(a_.send(b_.own(), {}, spans_of(sent), &count), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(next(b_, batch, &packet_), Arrival::kPacket);
  sent[1][20] ^= 1;
  for (const auto& each : sent) send_raw(a_, b_.own(), each);
  const Arrival expected[] = {Arrival::kPacket, Arrival::kDamaged, Arrival::kPacket};
  for (const Arrival each : expected) EXPECT_EQ(next(b_, batch, &packet_), each);
}

TEST_P(RoceSocketOverLoopback, TheFirstThatCannotBeAPacketEndsSending) {
  auto sent = datagrams_of({64, 64, 15, 64});
  size_t count = 0;
  EXPECT_EQ(a_.send(b_.own(), {}, spans_of(sent), &count), EINVAL);
  EXPECT_EQ(count, 2u);
  sent = datagrams_of({64, roce::kMaxPacket + 1});
  EXPECT_EQ(a_.send(b_.own(), {}, spans_of(sent), &count), EMSGSIZE);
  EXPECT_EQ(count, 1u);
}

TEST_P(RoceSocketOverLoopback, TheFieldsOfTheIpHeaderArriveAsTheyWereGiven) {
  b_.receive_in_batches();
  ReceiveBatch batch;
  const bool is_ipv4 = a_.own().address.is_ipv4();
  for (const IpFields& given : {IpFields{}, IpFields{kEcnCapable}, IpFields{0xb8 | kEcnCapable, 7, 0xabcde},
                                IpFields{kCongestionExperienced, 255}, IpFields{0xff, 1, 1}}) {
    auto sent = datagrams_of({64, 64, 80});
    size_t count = 0;
    ASSERT_EQ(a_.send(b_.own(), given, spans_of(sent), &count), 0);
    auto alone = datagram_of(64);
    ASSERT_EQ(a_.send(b_.own(), given, alone), 0);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(next(b_, batch, &packet_), Arrival::kPacket);
      EXPECT_EQ(packet_.ip.traffic_class, given.traffic_class);
      if (given.hop_limit != 0) {
        EXPECT_EQ(packet_.ip.hop_limit, given.hop_limit);
      }
      if (is_ipv4) {
        EXPECT_EQ(packet_.ip.flow_label, 0u);
      } else if (given.flow_label != 0) {
        EXPECT_EQ(packet_.ip.flow_label, given.flow_label);
      }
      EXPECT_EQ(packet_.ip.is_congested(), (given.traffic_class & 3) == 3);
    }
  }
}

// As from rxe: an identification that the receiver cannot see.
TEST(RoceSocket, AnIpv4IdentificationOtherThan0IsSolvedFor) {
  RoceSocket a;
  RoceSocket b;
  ASSERT_EQ(a.open(address_of("127.0.0.1"), 0, nullptr), 0);
  ASSERT_EQ(b.open(address_of("127.0.0.1"), 0, nullptr), 0);
  auto sent = datagram_of(64);
  roce::Ipv4Flow flow{{127, 0, 0, 1}, {127, 0, 0, 1}, a.own().port, b.own().port, 0x1234, true};
  roce::put_icrc(&sent[60], roce::icrc(flow, std::span<const uint8_t>(sent).first(60)));
  send_raw(a, b.own(), sent);
  PacketBuffer buffer;
  ReceivedPacket packet;
  EXPECT_EQ(next(b, buffer, &packet), Arrival::kPacket);
}

TEST(RoceSocket, OnlyAddressesOfThisMachineThatPeersCanReach) {
  RoceSocket socket;
  std::string problem;
  EXPECT_EQ(socket.open(address_of("224.0.0.1"), 0, &problem), EINVAL);
  EXPECT_EQ(problem, "RoCE v2 at 224.0.0.1:0: not an address that peers can reach");
  EXPECT_EQ(socket.open(address_of("192.0.2.1"), 0, &problem), EADDRNOTAVAIL);
  EXPECT_EQ(socket.fd(), -1);
}

}  // namespace
}  // namespace verbena::udp
