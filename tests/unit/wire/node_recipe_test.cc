// SPDX-License-Identifier: BSD-2-Clause
#include "wire/node_recipe.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "fabric/node.h"
#include "unit/common/temporary_folder.h"
#include "wire/address_range_text.h"
#include "wire/net_address.h"

namespace verbena::wire {
namespace {

DeviceTableOptions read_again(const DeviceTableOptions& options, std::string* key_file) {
  DeviceTableOptions read;
  EXPECT_TRUE(read_recipe(write_recipe(options, *key_file), &read, key_file))
      << write_recipe(options, *key_file);
  return read;
}

TEST(NodeRecipe, OfTheUsualNodeIsShort) { EXPECT_EQ(write_recipe({}, ""), "devices=1 link-layer=ethernet"); }

TEST(NodeRecipe, HasEverythingThatMakesANode) {
  DeviceTableOptions options{.count = 3};
  options.limits.profile = {'o', 'w', 'n'};
  options.limits.max_qp = 17;
  options.limits.max_mr_size = 1u << 20;
  options.network.enabled = true;
  options.network.port = 4000;
  NetAddress address;
  ASSERT_TRUE(NetAddress::from_text("192.0.2.1", &address));
  options.network.addresses.push_back(address.bytes);
  std::string key_file = "/somewhere/key";
  const DeviceTableOptions read = read_again(options, &key_file);
  EXPECT_EQ(read.count, 3u);
  EXPECT_EQ(read.link_layer, LinkLayer::kEthernet);
  EXPECT_TRUE(read.limits == options.limits);
  EXPECT_TRUE(read.network.enabled);
  EXPECT_EQ(read.network.port, 4000);
  EXPECT_EQ(read.network.addresses, options.network.addresses);
  EXPECT_EQ(key_file, "/somewhere/key");
}

TEST(NodeRecipe, HasThePeersOfANodeWithPackets) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.kind = NetworkKind::kRoce;
  options.network.peer_ranges.resize(2);
  ASSERT_TRUE(read_range("192.0.2.0/24", &options.network.peer_ranges[0]));
  ASSERT_TRUE(read_range("2001:db8::7", &options.network.peer_ranges[1]));
  std::string key_file;
  const DeviceTableOptions read = read_again(options, &key_file);
  EXPECT_EQ(read.network.kind, NetworkKind::kRoce);
  EXPECT_EQ(read.network.peer_ranges, options.network.peer_ranges);
}

TEST(NodeRecipe, KnowsTheOtherLinkLayer) {
  std::string key_file;
  EXPECT_EQ(read_again({.link_layer = LinkLayer::kInfiniband}, &key_file).link_layer, LinkLayer::kInfiniband);
}

TEST(NodeRecipe, IsNotMadeOfOtherText) {
  for (const char* text : {"", "devices", "devices=0", "devices=17", "devices=x", "link-layer=token-ring",
                           "max_qp=0", "max_qp=99999999", "max_sge_rd=31", "ip=nowhere", "port=0",
                           "port=65536", "peers=here", "colour=red", "profile=", "profile=../x"}) {
    DeviceTableOptions options;
    std::string key_file;
    EXPECT_FALSE(read_recipe(text, &options, &key_file)) << text;
  }
}

TEST(NodeRecipe, IsNotWrittenForAKeyFileThatWouldBreakIt) { EXPECT_EQ(write_recipe({}, "/my keys/key"), ""); }

TEST(NodeRecipe, MakesTheNodeAgain) {
  const TemporaryFolder folder;
  setenv(kRecipeVariable, "devices=2 link-layer=ethernet", 1);
  EXPECT_EQ(restore_node(folder.path() + "/n"), 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/n/sys/class/infiniband/verbena1"));
  unsetenv(kRecipeVariable);
  EXPECT_EQ(restore_node(folder.path() + "/m"), ENOENT);
}

}  // namespace
}  // namespace verbena::wire
