// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_table.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

namespace verbena {
namespace {

bool mapped_ipv4(const GidEntry& gid) {
  return std::all_of(gid.raw.begin(), gid.raw.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         gid.raw[10] == 0xff && gid.raw[11] == 0xff;
}

TEST(DeviceTable, NamesDevicesInOrder) {
  const DeviceTable table = describe_devices({.count = 3});
  ASSERT_EQ(table.count, 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(table.devices[i].name.data(), "verbena" + std::to_string(i));
}

TEST(DeviceTable, HoldsNoMoreThanItsRoom) {
  EXPECT_EQ(describe_devices({.count = kMaxDevices + 1}).count, kMaxDevices);
}

TEST(DeviceTable, SaysTheSameEachTime) {
  const DeviceTable a = describe_devices({.count = 2});
  const DeviceTable b = describe_devices({.count = 2});
  EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
}

TEST(DeviceTable, GivesEveryDeviceItsOwnGuid) {
  std::set<uint64_t> guids;
  for (const LinkLayer layer : {LinkLayer::kEthernet, LinkLayer::kInfiniband}) {
    const DeviceTable table = describe_devices({.count = kMaxDevices, .link_layer = layer});
    for (uint32_t i = 0; i < table.count; ++i) guids.insert(table.devices[i].node_guid);
  }
  EXPECT_EQ(guids.size(), 2 * kMaxDevices);
}

TEST(DeviceTable, MarksGuidsAsLocallyAdministered) {
  const DeviceTable table = describe_devices({.count = kMaxDevices});
  for (uint32_t i = 0; i < table.count; ++i) EXPECT_EQ(table.devices[i].node_guid >> 56 & 3, 2u);
}

TEST(DeviceTable, PutsTheGuidBehindTheLinkLocalPrefixAtIndexZero) {
  const DeviceTable table = describe_devices({});
  const DeviceDescription& device = table.devices[0];
  ASSERT_GE(device.ports[0].gid_count, 1u);
  const auto& raw = device.ports[0].gids[0].raw;
  uint64_t prefix = 0;
  uint64_t tail = 0;
  for (unsigned i = 0; i < 8; ++i) {
    prefix = prefix << 8 | raw[i];
    tail = tail << 8 | raw[8 + i];
  }
  EXPECT_EQ(prefix, 0xfe80000000000000u);
  EXPECT_EQ(tail, device.node_guid);
}

TEST(DeviceTable, OnEthernetEveryGidIsRoceV2AndThereIsNoLid) {
  const DeviceTable table = describe_devices({});
  const DeviceDescription& device = table.devices[0];
  EXPECT_EQ(device.ports[0].lid, 0u);
  for (uint32_t i = 0; i < device.ports[0].gid_count; ++i) EXPECT_EQ(device.ports[0].gids[i].type, GidType::kRoceV2);
}

TEST(DeviceTable, OnEthernetTheLoopbackAddressIsTheLastOfIpv4) {
  const DeviceTable table = describe_devices({});
  const DeviceDescription& device = table.devices[0];
  uint32_t last = 0;
  for (uint32_t i = 0; i < device.ports[0].gid_count; ++i)
    if (mapped_ipv4(device.ports[0].gids[i])) last = i;
  if (last == 0) GTEST_SKIP() << "no IPv4 address here, not even the loopback's";
  EXPECT_EQ(device.ports[0].gids[last].raw[12], 127);
}

TEST(DeviceTable, OnEthernetIpv6FollowsIpv4) {
  const DeviceTable table = describe_devices({});
  const DeviceDescription& device = table.devices[0];
  bool six = false;
  for (uint32_t i = 1; i < device.ports[0].gid_count; ++i) {
    if (!mapped_ipv4(device.ports[0].gids[i])) six = true;
    EXPECT_EQ(!mapped_ipv4(device.ports[0].gids[i]), six) << "GID " << i;
  }
}

TEST(DeviceTable, NamesInterfacesThatExist) {
  const DeviceTable table = describe_devices({});
  const DeviceDescription& device = table.devices[0];
  for (uint32_t i = 0; i < device.ports[0].gid_count; ++i)
    EXPECT_EQ(if_nametoindex(device.ports[0].gids[i].interface_name.data()), device.ports[0].gids[i].interface_index) << i;
}

TEST(DeviceTable, OnInfinibandThereIsOneGidAndALidFromOne) {
  const DeviceTable table = describe_devices({.count = 2, .link_layer = LinkLayer::kInfiniband});
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(table.devices[i].ports[0].gid_count, 1u);
    EXPECT_EQ(table.devices[i].ports[0].gids[0].type, GidType::kIb);
    EXPECT_EQ(table.devices[i].ports[0].lid, i + 1);
  }
}

TEST(DeviceTable, PortsOfInfinibandHaveLidsOfTheirOwn) {
  const DeviceTable table =
      describe_devices({.count = 2, .ports = 2, .lmc = 2, .link_layer = LinkLayer::kInfiniband});
  uint32_t lid = 4;
  for (uint32_t i = 0; i < 2; ++i)
    for (const PortDescription& port : table.devices[i].ports) {
      EXPECT_EQ(port.lid, lid);
      EXPECT_EQ(port.gid_count, 1u);
      lid += 4;
    }
  EXPECT_NE(table.devices[0].ports[0].gids[0].raw, table.devices[0].ports[1].gids[0].raw);
}

TEST(DeviceTable, PortsOfEthernetHaveTheAddressesInTurn) {
  std::array<uint8_t, 16> first{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 2}, second = first;
  second[15] = 3;
  DeviceTableOptions options;
  options.ports = 2;
  options.network.addresses = {first, second};
  const DeviceDescription device = describe_devices(options).devices[0];
  for (const PortDescription& port : device.ports) {
    ASSERT_EQ(port.gid_count, 2u);
    EXPECT_EQ(port.lid, 0u);
  }
  EXPECT_EQ(device.ports[0].gids[1].raw, first);
  EXPECT_EQ(device.ports[1].gids[1].raw, second);
}

}  // namespace
}  // namespace verbena
