// SPDX-License-Identifier: BSD-2-Clause
#include "cm/groups.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <cstring>

#include "unit/cm/addresses.h"

namespace verbena::cm {
namespace {

Gid mgid(const Address& group, LinkLayer link_layer, PortSpace space = PortSpace::kUdp) {
  Gid out{};
  EXPECT_EQ(mgid_of(group, space, link_layer, &out), 0);
  return out;
}

constexpr LinkLayer kRoce = LinkLayer::kEthernet;
constexpr LinkLayer kIb = LinkLayer::kInfiniband;

TEST(CmGroup, OfIPv4OverRoceIsTheMappedAddress) {
  EXPECT_EQ(mgid(ipv4("239.1.2.3"), kRoce), gid("::ffff:239.1.2.3"));
}
TEST(CmGroup, OfIPv6OverRoceIsTheAddress) { EXPECT_EQ(mgid(ipv6("ff05::7"), kRoce), gid("ff05::7")); }
TEST(CmGroup, OfIPv4OverInfinibandCarriesTheCmsSignature) {
  EXPECT_EQ(mgid(ipv4("239.1.2.3"), kIb), gid("ff12:4001:ffff::f01:203"));
}
TEST(CmGroup, OfIPv4InTheIpoibSpaceIsIpoibs) {
  EXPECT_EQ(mgid(ipv4("239.1.2.3"), kIb, PortSpace::kIpoib), gid("ff12:401b:ffff::f01:203"));
}
TEST(CmGroup, OfIPv6OverInfinibandKeepsEightyBits) {
  EXPECT_EQ(mgid(ipv6("ff05:1:2:3:4:5:6:7"), kIb), gid("ff12:6001:ffff:3:4:5:6:7"));
}
TEST(CmGroup, AnAssignedMgidIsItself) {
  EXPECT_EQ(mgid(ipv6("ff12:a01b:fe80::7"), kIb), gid("ff12:a01b:fe80::7"));
}
TEST(CmGroup, AnIbAddressIsItself) {
  EXPECT_EQ(mgid(ib("ff12:4001::7", 0), kIb), gid("ff12:4001::7"));
  EXPECT_EQ(mgid(ib("ff12:4001::7", 0), kRoce), gid("ff12:4001::7"));
}
TEST(CmGroup, OfTheWildcardIsZero) { EXPECT_EQ(mgid(ipv4("0.0.0.0"), kRoce), Gid{}); }
TEST(CmGroup, OfNoAddressIsRefused) {
  Gid out;
  EXPECT_EQ(mgid_of(Address{}, PortSpace::kUdp, kRoce, &out), EINVAL);
}

TEST(CmGroup, TheLidIsAMulticastLidAndTheSameEachTime) {
  const uint16_t lid = mlid_of(gid("ff12:4001:ffff::7"), kIb);
  EXPECT_GE(lid, 0xc000);
  EXPECT_LE(lid, 0xfffe);
  EXPECT_EQ(lid, mlid_of(gid("ff12:4001:ffff::7"), kIb));
}
TEST(CmGroup, ThereAreNoLidsOverRoce) { EXPECT_EQ(mlid_of(gid("ff12:4001:ffff::7"), kRoce), 0); }

TEST(CmQkey, OfTheUdpSpaceIsTheManagersOwn) {
  uint32_t qkey;
  ASSERT_EQ(qkey_of(PortSpace::kUdp, 0, 0, &qkey), 0);
  EXPECT_EQ(qkey, 0x01234567u);
}
TEST(CmQkey, AskedForIsGiven) {
  uint32_t qkey;
  ASSERT_EQ(qkey_of(PortSpace::kUdp, 0, 77, &qkey), 0);
  EXPECT_EQ(qkey, 77u);
}
TEST(CmQkey, OnceSetStays) {
  uint32_t qkey;
  ASSERT_EQ(qkey_of(PortSpace::kUdp, 77, 0, &qkey), 0);
  EXPECT_EQ(qkey, 77u);
}
TEST(CmQkey, AnotherOneIsRefused) {
  uint32_t qkey;
  EXPECT_EQ(qkey_of(PortSpace::kUdp, 77, 78, &qkey), EINVAL);
}

TEST(CmGroup, AJoinTellsHowToSendThere) {
  const Membership membership{gid("::ffff:239.1.2.3"), 0, kUdpQkey, 0, 1, 2};
  const DatagramParameters told = join_parameters(membership, kRoce);
  EXPECT_EQ(told.qp_number, 0xffffffu);
  EXPECT_EQ(told.qkey, 0x01234567u);
  EXPECT_EQ(told.address.is_global, 1);
  EXPECT_EQ(told.address.port_num, 1);
  EXPECT_EQ(told.address.grh.sgid_index, 2);
  EXPECT_EQ(std::memcmp(told.address.grh.dgid.raw, membership.mgid.data(), 16), 0);
  EXPECT_EQ(told.private_data.length, 0);
}

}  // namespace
}  // namespace verbena::cm
