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
    ASSERT_EQ(a_.send(b_.own(), sent), 0);
    ASSERT_EQ(next(b_, buffer_, &packet_), Arrival::kPacket) << size;
    EXPECT_EQ(std::vector<uint8_t>(packet_.datagram.begin(), packet_.datagram.end()), sent);
    EXPECT_EQ(packet_.from.address, a_.own().address);
    EXPECT_EQ(packet_.from.port, a_.own().port);
  }
  EXPECT_EQ(b_.receive(buffer_, &packet_), Arrival::kNothing);
}

TEST_P(RoceSocketOverLoopback, DamagedPacketsAreDropped) {
  auto sent = datagram_of(64);
  ASSERT_EQ(a_.send(b_.own(), sent), 0);
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
  EXPECT_EQ(a_.send(b_.own(), longer), EMSGSIZE);
  auto shorter = datagram_of(15);
  EXPECT_EQ(a_.send(b_.own(), shorter), EINVAL);
  auto packet = datagram_of(64);
  EXPECT_EQ(a_.send({address_of(a_.own().address.is_ipv4() ? "::1" : "127.0.0.1"), 4791}, packet), EINVAL);
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
