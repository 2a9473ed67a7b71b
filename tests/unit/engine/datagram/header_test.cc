// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_header.h"

#include <arpa/inet.h>
#include <endian.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>

#include <cstring>

namespace verbena {
namespace {

ibv_gid gid(const char* text) {
  ibv_gid address;
  EXPECT_EQ(inet_pton(AF_INET6, text, address.raw), 1) << text;
  return address;
}
GidEntry source(const char* text, GidType type = GidType::kRoceV2) {
  GidEntry entry{};
  std::memcpy(entry.raw.data(), gid(text).raw, 16);
  entry.type = type;
  return entry;
}
ibv_global_route route(const char* text) {
  ibv_global_route route{};
  route.dgid = gid(text);
  route.flow_label = 0x12345;
  route.hop_limit = 64;
  route.traffic_class = 0xa8;
  return route;
}
iphdr ipv4_of(const DatagramHeader& header) {
  iphdr ip;
  std::memcpy(&ip, &header.bytes[20], sizeof ip);
  return ip;
}
ibv_grh grh_of(const DatagramHeader& header) {
  ibv_grh grh;
  std::memcpy(&grh, header.bytes.data(), sizeof grh);
  return grh;
}
DatagramHeader ipv4(uint32_t length = 100, bool immediate = false) {
  DatagramHeader header = DatagramHeader::of(source("::ffff:10.0.0.1"), route("::ffff:10.0.0.2"));
  header.set_length(length, immediate);
  return header;
}
DatagramHeader ipv6(uint32_t length = 100) {
  DatagramHeader header = DatagramHeader::of(source("fe80::1"), route("fe80::2"));
  header.set_length(length, false);
  return header;
}

TEST(NetworkHeaderTest, RoceBetweenMappedAddressesIsIpv4) {
  EXPECT_EQ(network_header(source("::ffff:10.0.0.1"), gid("::ffff:10.0.0.2")), NetworkHeader::kIpv4);
}
TEST(NetworkHeaderTest, RoceBetweenOtherAddressesIsIpv6) {
  EXPECT_EQ(network_header(source("fe80::1"), gid("fe80::2")), NetworkHeader::kIpv6);
}
TEST(NetworkHeaderTest, RoceFromIpv6ToAMappedAddressIsIpv6) {
  EXPECT_EQ(network_header(source("fe80::1"), gid("::ffff:10.0.0.2")), NetworkHeader::kIpv6);
}
TEST(NetworkHeaderTest, AnIbGidMakesAGrh) {
  EXPECT_EQ(network_header(source("fe80::1", GidType::kIb), gid("fe80::2")), NetworkHeader::kInfiniband);
}

TEST(IsMulticastTest, Ipv6) { EXPECT_TRUE(is_multicast(gid("ff12::1"))); }
TEST(IsMulticastTest, MappedClassD) { EXPECT_TRUE(is_multicast(gid("::ffff:224.0.0.1"))); }
TEST(IsMulticastTest, MappedClassDHasAnEnd) { EXPECT_FALSE(is_multicast(gid("::ffff:240.0.0.1"))); }
TEST(IsMulticastTest, UnicastIsNot) { EXPECT_FALSE(is_multicast(gid("fe80::1"))); }

TEST(Ipv4DatagramTest, TheFirstTwentyBytesAreZero) {
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(ipv4().bytes[i], 0) << i;
}
TEST(Ipv4DatagramTest, VersionAndHeaderLength) { EXPECT_EQ(ipv4().bytes[20], 0x45); }
TEST(Ipv4DatagramTest, TrafficClassIsTheTypeOfService) { EXPECT_EQ(ipv4_of(ipv4()).tos, 0xa8); }
TEST(Ipv4DatagramTest, HopLimitIsTheTimeToLive) { EXPECT_EQ(ipv4_of(ipv4()).ttl, 64); }
TEST(Ipv4DatagramTest, CarriesUdp) { EXPECT_EQ(ipv4_of(ipv4()).protocol, IPPROTO_UDP); }
TEST(Ipv4DatagramTest, Source) { EXPECT_EQ(ipv4_of(ipv4()).saddr, inet_addr("10.0.0.1")); }
TEST(Ipv4DatagramTest, Destination) { EXPECT_EQ(ipv4_of(ipv4()).daddr, inet_addr("10.0.0.2")); }
TEST(Ipv4DatagramTest, LengthIsThatOfTheWholePacket) {
  EXPECT_EQ(be16toh(ipv4_of(ipv4(100)).tot_len), 20 + 8 + 12 + 8 + 100 + 4);
}
TEST(Ipv4DatagramTest, LengthCountsPaddingAndImmediate) {
  EXPECT_EQ(be16toh(ipv4_of(ipv4(97, true)).tot_len), 20 + 8 + 12 + 8 + 4 + 100 + 4);
}
TEST(Ipv4DatagramTest, ChecksumIsRight) {
  const DatagramHeader header = ipv4();
  uint32_t sum = 0;
  for (size_t i = 20; i < 40; i += 2) sum += uint32_t{header.bytes[i]} << 8 | header.bytes[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  EXPECT_EQ(sum, 0xffffu);
}
TEST(Ipv4DatagramTest, ChecksumIsRightAfterAnotherLength) {
  DatagramHeader header = ipv4(4096);
  header.set_length(100, false);
  EXPECT_EQ(header.bytes, ipv4(100).bytes);
}

TEST(Ipv6DatagramTest, VersionTrafficClassAndFlowLabel) {
  EXPECT_EQ(be32toh(grh_of(ipv6()).version_tclass_flow), 0x6a812345u);
}
TEST(Ipv6DatagramTest, CarriesUdp) { EXPECT_EQ(grh_of(ipv6()).next_hdr, IPPROTO_UDP); }
TEST(Ipv6DatagramTest, HopLimit) { EXPECT_EQ(grh_of(ipv6()).hop_limit, 64); }
TEST(Ipv6DatagramTest, LengthIsThatOfThePayload) {
  EXPECT_EQ(be16toh(grh_of(ipv6(100)).paylen), 8 + 12 + 8 + 100 + 4);
}
TEST(Ipv6DatagramTest, Addresses) {
  const ibv_grh grh = grh_of(ipv6());
  EXPECT_EQ(std::memcmp(grh.sgid.raw, gid("fe80::1").raw, 16), 0);
  EXPECT_EQ(std::memcmp(grh.dgid.raw, gid("fe80::2").raw, 16), 0);
}

TEST(InfinibandDatagramTest, NextHeaderIsTheTransport) {
  const auto header = DatagramHeader::of(source("fe80::1", GidType::kIb), route("fe80::2"));
  EXPECT_EQ(grh_of(header).next_hdr, 0x1b);
}
TEST(InfinibandDatagramTest, LengthHasNoUdpHeader) {
  auto header = DatagramHeader::of(source("fe80::1", GidType::kIb), route("fe80::2"));
  header.set_length(100, false);
  EXPECT_EQ(be16toh(grh_of(header).paylen), 12 + 8 + 100 + 4);
}

}  // namespace
}  // namespace verbena
