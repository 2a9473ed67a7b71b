// SPDX-License-Identifier: BSD-2-Clause
#include "cm/addresses.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <infiniband/ib.h>
#include <net/if.h>

#include <cstring>

#include "unit/cm/addresses.h"

namespace verbena::cm {
namespace {

// One or two devices with addresses of the documentation's ranges (RFC 5737, RFC 3849).
DeviceTable devices(uint32_t count = 2, LinkLayer link_layer = LinkLayer::kEthernet) {
  DeviceTable table{};
  table.count = count;
  for (uint32_t i = 0; i < count; ++i) {
    DeviceDescription& device = table.devices[i];
    device.link_layer = link_layer;
    const auto add = [&](const Gid& raw) { device.ports[0].gids[device.ports[0].gid_count++].raw = raw; };
    add(gid(i == 0 ? "fe80::a" : "fe80::b"));
    if (link_layer == LinkLayer::kInfiniband) continue;
    add(gid("::ffff:192.0.2.1"));
    if (i == 1) add(gid("::ffff:192.0.2.2"));
    add(gid("::ffff:127.0.0.1"));
    add(gid("2001:db8::1"));
  }
  return table;
}

TEST(CmAddress, ThePortIsTheOneThatHasTheAddress) {
  DeviceTable table = devices(1);
  DeviceDescription& device = table.devices[0];
  device.port_count = 2;
  PortDescription& second = device.ports[1];
  second.gids[second.gid_count++].raw = gid("fe80::c");
  second.gids[second.gid_count++].raw = gid("::ffff:192.0.2.9");
  Place place;
  ASSERT_TRUE(find_place(table, ipv4("192.0.2.9"), &place));
  EXPECT_EQ(place.port, 2);
  EXPECT_EQ(place.gid_index, 1u);
  ASSERT_TRUE(find_place(table, ipv4("192.0.2.1"), &place));
  EXPECT_EQ(place.port, 1);
}

// ---- the type ----

TEST(CmAddress, AnIbAddressLiesInMemoryAsLibrdmacmsDoes) {
  sockaddr_ib theirs{};
  theirs.sib_family = AF_IB;
  theirs.sib_pkey = htobe16(0x8001);
  theirs.sib_addr.sib_addr32[3] = htobe32(7);
  theirs.sib_sid = htobe64(0x1060001);
  theirs.sib_sid_mask = ~uint64_t{0};
  theirs.sib_scope_id = 3;
  Address read;
  ASSERT_TRUE(read_address(reinterpret_cast<const sockaddr*>(&theirs), &read));
  const SockaddrIb ours = read.ib();
  EXPECT_EQ(std::memcmp(&ours, &theirs, sizeof ours), 0);
}

TEST(CmAddress, AnUnknownFamilyIsNotRead) {
  sockaddr_storage unix_domain{};
  unix_domain.ss_family = AF_UNIX;
  Address read;
  EXPECT_FALSE(read_address(reinterpret_cast<const sockaddr*>(&unix_domain), &read));
  EXPECT_TRUE(read.none());
}

TEST(CmAddress, IsWrittenAsItWasRead) {
  sockaddr_storage written;
  write_address(ipv6("2001:db8::1", 7000), &written);
  Address read;
  ASSERT_TRUE(read_address(reinterpret_cast<const sockaddr*>(&written), &read));
  EXPECT_EQ(read, ipv6("2001:db8::1", 7000));
}

TEST(CmAddress, PortsOfEachFamilyComeBack) {
  for (Address address : {ipv4("192.0.2.1"), ipv6("2001:db8::1"), ib("fe80::1", 0x1060000)}) {
    set_port(&address, 7471);
    EXPECT_EQ(port_of(address), 7471) << to_text(address);
  }
}

TEST(CmAddress, AnIbPortIsWhatTheMaskLetsThrough) { EXPECT_EQ(port_of(ib("::", 0x1061234, 0xff00)), 0x1200); }

TEST(CmAddress, SettingAnIbPortKeepsTheSpace) {
  Address address = ib("::", 0x1061234, 0xffffffffffff0000);
  set_port(&address, 5);
  EXPECT_EQ(service_id(PortSpace::kIb, address), 0x1060005u);
}

// ---- kinds ----

TEST(CmAddress, ZeroAddressesOfEachFamilyAreAny) {
  for (const Address& address : {ipv4("0.0.0.0"), ipv6("::"), ib("::", 1)}) EXPECT_TRUE(is_any(address));
}

TEST(CmAddress, LoopbackAddressesOfEachFamilyAreAny) {
  for (const Address& address : {ipv4("127.0.0.1"), ipv4("127.9.9.9"), ipv6("::1"), ib("::1", 1)})
    EXPECT_TRUE(is_any(address)) << to_text(address);
}

TEST(CmAddress, OrdinaryAddressesAreNotAny) {
  for (const Address& address : {ipv4("128.0.0.1"), ipv6("2001:db8::1"), ib("fe80::1", 1)})
    EXPECT_FALSE(is_any(address)) << to_text(address);
}

TEST(CmAddress, MulticastOfEachFamilyIsRecognised) {
  for (const Address& address :
       {ipv4("224.0.0.1"), ipv4("239.255.255.255"), ipv6("ff02::1"), ib("ff12::1", 1)})
    EXPECT_TRUE(is_multicast(address)) << to_text(address);
  for (const Address& address : {ipv4("223.255.255.255"), ipv4("240.0.0.0"), ipv6("fe80::1")})
    EXPECT_FALSE(is_multicast(address)) << to_text(address);
}

TEST(CmAddress, ALinkLocalAddressWithoutScopeIsRefused) {
  EXPECT_EQ(check_scope(ipv6("fe80::1")), EINVAL);
  EXPECT_EQ(check_scope(ipv6("febf::1")), EINVAL);
  EXPECT_EQ(check_scope(ipv6("fe80::1", 0, 2)), 0);
  EXPECT_EQ(check_scope(ipv6("2001:db8::1")), 0);
}

TEST(CmAddress, TheSameHostHasAnyPort) { EXPECT_TRUE(same_host(ipv4("192.0.2.1", 1), ipv4("192.0.2.1", 2))); }
TEST(CmAddress, AMappedAddressIsAnotherFamilys) {
  EXPECT_FALSE(same_host(ipv4("192.0.2.1"), ipv6("::ffff:192.0.2.1")));
}
TEST(CmAddress, ScopesTellLinkLocalHostsApart) {
  EXPECT_FALSE(same_host(ipv6("fe80::1", 0, 1), ipv6("fe80::1", 0, 2)));
  EXPECT_TRUE(same_host(ipv6("2001:db8::1", 0, 1), ipv6("2001:db8::1", 0, 2)));
}

// ---- GIDs and service ids ----

TEST(CmAddress, IPv4IsMappedIntoAGidAndBack) {
  EXPECT_EQ(gid_of(ipv4("192.0.2.1", 9)), gid("::ffff:192.0.2.1"));
  EXPECT_EQ(address_of(gid("::ffff:192.0.2.1")), ipv4("192.0.2.1"));
  EXPECT_EQ(address_of(gid("2001:db8::1")), ipv6("2001:db8::1"));
}

TEST(CmAddress, AServiceIdIsTheSpaceAndThePort) {
  EXPECT_EQ(service_id(PortSpace::kTcp, ipv4("192.0.2.1", 7174)), 0x1060000u + 7174);
  EXPECT_EQ(service_id(PortSpace::kUdp, ipv6("::", 7174)), 0x1110000u + 7174);
  EXPECT_EQ(space_of_service(0x1110000 + 7174), PortSpace::kUdp);
  EXPECT_EQ(port_of_service(0x1110000 + 7174), 7174);
}

TEST(CmAddress, AnIbAddressWithoutServiceIdIsInTheIbSpace) {
  Address address = ib("::", 0, 0);
  PortSpace bound;
  ASSERT_TRUE(select_space(PortSpace::kIb, &address, &bound));
  EXPECT_EQ(bound, PortSpace::kIb);
  EXPECT_EQ(be64toh(address.ib().sid), 0x13f0000u);
}

TEST(CmAddress, AnIbAddressWithoutServiceIdOfATcpIdIsInTheTcpSpace) {
  Address address = ib("::", 0, 0);
  PortSpace bound;
  ASSERT_TRUE(select_space(PortSpace::kTcp, &address, &bound));
  EXPECT_EQ(bound, PortSpace::kTcp);
}

// ---- devices ----

TEST(CmPlace, AnAddressIsTheFirstDevicesThatHasIt) {
  Place place;
  ASSERT_TRUE(find_place(devices(), ipv4("192.0.2.1", 9), &place));
  EXPECT_EQ(place.device, 0u);
  EXPECT_EQ(place.gid_index, 1u);
  EXPECT_EQ(place.gid, gid("::ffff:192.0.2.1"));
}

TEST(CmPlace, AnAddressOfTheSecondDeviceIsFoundThere) {
  Place place;
  ASSERT_TRUE(find_place(devices(), ipv4("192.0.2.2"), &place));
  EXPECT_EQ(place.device, 1u);
}

TEST(CmPlace, AnIbAddressIsTheDevicesThatHasTheGid) {
  Place place;
  ASSERT_TRUE(find_place(devices(), ib("fe80::b", 1), &place));
  EXPECT_EQ(place.device, 1u);
  EXPECT_EQ(place.gid_index, 0u);
}

TEST(CmPlace, EveryLoopbackAddressIsAtTheOneGid) {
  for (const Address& address : {ipv4("127.0.0.1"), ipv4("127.1.2.3"), ipv6("::1"), ib("::1", 1)}) {
    Place place;
    ASSERT_TRUE(find_place(devices(), address, &place)) << to_text(address);
    EXPECT_EQ(place.gid, gid("::ffff:127.0.0.1")) << to_text(address);
  }
}

TEST(CmPlace, LoopbackOverInfinibandIsTheFirstGid) {
  Place place;
  ASSERT_TRUE(find_place(devices(1, LinkLayer::kInfiniband), ipv4("127.0.0.1"), &place));
  EXPECT_EQ(place.gid, gid("fe80::a"));
}

TEST(CmPlace, AnotherMachinesAddressIsNobodys) {
  Place place;
  EXPECT_FALSE(find_place(devices(), ipv4("198.51.100.7"), &place));
  EXPECT_FALSE(find_place(devices(1, LinkLayer::kInfiniband), ipv4("198.51.100.7"), &place));
}

TEST(CmPlace, AWildcardIsNobodys) {
  Place place;
  EXPECT_FALSE(find_place(devices(), ipv4("0.0.0.0"), &place));
  EXPECT_FALSE(find_place(devices(), ipv6("::"), &place));
}

TEST(CmPlace, ATableWithoutDevicesHasNoPlace) {
  Place place;
  EXPECT_FALSE(find_place(devices(0), ipv4("127.0.0.1"), &place));
}

TEST(CmPlace, AGidIsSoughtOnTheDeviceInQuestion) {
  Place place;
  EXPECT_FALSE(find_gid(devices(), gid("fe80::b"), 0, &place));
  EXPECT_TRUE(find_gid(devices(), gid("fe80::b"), 1, &place));
}

TEST(CmPlace, LoopbackIsTheMachinesOwn) {
  EXPECT_TRUE(is_of_machine(ipv4("127.0.0.1", 1)));
  EXPECT_FALSE(is_of_machine(ipv4("198.51.100.7", 1)));
}

// ---- sources ----

TEST(CmSource, OfLoopbackIsLoopback) {
  Address source;
  ASSERT_EQ(choose_source(devices(), ipv4("127.0.0.5", 9), &source), 0);
  EXPECT_EQ(source, ipv4("127.0.0.1"));
}

TEST(CmSource, OfTheWildcardIsLoopback) {
  Address source;
  ASSERT_EQ(choose_source(devices(), ipv6("::", 9), &source), 0);
  EXPECT_EQ(source, ipv6("::1"));
}

TEST(CmSource, OfALinkLocalDestinationNeedsAScope) {
  Address source;
  EXPECT_EQ(choose_source(devices(), ipv6("fe80::9"), &source), EINVAL);
}

TEST(CmSource, OfAnIbDestinationIsTheGidOfItsSubnet) {
  DeviceTable table = devices();
  table.devices[1].ports[0].gids[0].raw = gid("fec0:0:0:7::b");
  Address source;
  ASSERT_EQ(choose_source(table, ib("fec0:0:0:7::99", 0x1060001), &source), 0);
  EXPECT_EQ(gid_of(source), gid("fec0:0:0:7::b"));
}

TEST(CmSource, OfAnotherHostIsAnAddressOfTheMachineOrARefusal) {
  Address source;
  const int error = choose_source(devices(), ipv4("198.51.100.7", 9), &source);
  if (error == 0) {
    EXPECT_TRUE(is_of_machine(source));
    EXPECT_EQ(port_of(source), 0);
  } else {
    EXPECT_TRUE(error == ENETUNREACH || error == EHOSTUNREACH) << error;
  }
}

// ---- text ----

TEST(CmAddress, ReadsWellAsText) {
  EXPECT_EQ(to_text(ipv4("192.0.2.1", 7471)), "192.0.2.1:7471");
  EXPECT_EQ(to_text(ipv6("fe80::1", 7471, 2)), "[fe80::1%2]:7471");
  EXPECT_EQ(to_text(ib("fe80::1", 0x1060001)), "[fe80::1]:0x1060001 (ib)");
  EXPECT_EQ(to_text(Address{}), "-");
}

}  // namespace
}  // namespace verbena::cm
