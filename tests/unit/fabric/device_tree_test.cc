// SPDX-License-Identifier: BSD-2-Clause
//
// The tree, read the way its readers do: libibverbs 44 (init.c, cmd_device.c, device.c, verbs.c, ibdev_nl.c),
// with the sizes of their buffers.
#include "fabric/device_tree.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/rules/device_attributes.h"
#include "unit/common/temporary_folder.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;

class DeviceTree : public ::testing::Test {
 protected:
  void SetUp() override {
    table_ = describe_devices({.count = 2});
    ASSERT_EQ(write_device_tree(root_, table_), 0);
  }

  std::string whole(const std::string& path) const {
    std::ifstream file(root_ + "/sys/class/" + path);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Without its newline.
  std::string line(const std::string& path) const {
    std::string text = whole(path);
    EXPECT_FALSE(text.empty()) << path;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  std::string port(const std::string& path) const { return line("infiniband/verbena0/ports/1/" + path); }

  const TemporaryFolder temporary_;
  std::string root_ = temporary_.path();
  DeviceTable table_;
};

TEST_F(DeviceTree, HasTheAbiVersionsOfLibibverbs) {
  EXPECT_EQ(line("infiniband_verbs/abi_version"), "6");
  EXPECT_EQ(line("infiniband_verbs/uverbs0/abi_version"), "1");
}

TEST_F(DeviceTree, HasTheConnectionManagersAbiVersionAndNumber) {
  EXPECT_EQ(line("misc/rdma_cm/abi_version"), "4");
  EXPECT_EQ(line("misc/rdma_cm/dev"), "1:7");
  EXPECT_TRUE(fs::exists(root_ + "/dev/infiniband/rdma_cm"));
}

TEST_F(DeviceTree, PairsEachDeviceFileWithItsDevice) {
  for (int i = 0; i < 2; ++i) {
    const std::string n = std::to_string(i);
    EXPECT_EQ(line("infiniband_verbs/uverbs" + n + "/ibdev"), "verbena" + n);
    EXPECT_TRUE(fs::exists(root_ + "/dev/infiniband/uverbs" + n));
  }
}

TEST_F(DeviceTree, SaysTheDeviceNumberOfTheFileThatBacksIt) {
  unsigned major = 0;
  unsigned minor = 0;
  ASSERT_EQ(std::sscanf(line("infiniband_verbs/uverbs0/dev").c_str(), "%u:%u", &major, &minor), 2);
  EXPECT_EQ(major, 1u);
  EXPECT_EQ(minor, 7u);
}

TEST_F(DeviceTree, CallsTheNodeAChannelAdapter) { EXPECT_EQ(line("infiniband/verbena0/node_type"), "1: CA"); }

TEST_F(DeviceTree, SaysTheGuidInFourGroups) {
  unsigned short part[4];
  const std::string text = line("infiniband/verbena1/node_guid");
  ASSERT_EQ(text.size(), 19u);
  ASSERT_EQ(std::sscanf(text.c_str(), "%hx:%hx:%hx:%hx", part, part + 1, part + 2, part + 3), 4);
  uint64_t guid = 0;
  for (const unsigned short p : part) guid = guid << 16 | p;
  EXPECT_EQ(guid, table_.devices[1].node_guid);
}

TEST_F(DeviceTree, HasADenseGidTable) {
  for (uint32_t i = 0; i < table_.devices[0].ports[0].gid_count; ++i) {
    const std::string text = port("gids/" + std::to_string(i));
    ASSERT_EQ(text.size(), 39u);  // with its newline just below the reader's 41
    for (unsigned j = 0; j < 8; ++j) {
      unsigned short group = 0;
      ASSERT_EQ(std::sscanf(text.c_str() + j * 5, "%hx", &group), 1);
      EXPECT_EQ(group >> 8, table_.devices[0].ports[0].gids[i].raw[2 * j]);
      EXPECT_EQ(group & 0xff, table_.devices[0].ports[0].gids[i].raw[2 * j + 1]);
    }
  }
}

TEST_F(DeviceTree, HasNoGidBeyondTheTable) {
  EXPECT_FALSE(fs::exists(root_ + "/sys/class/infiniband/verbena0/ports/1/gids/" +
                          std::to_string(table_.devices[0].ports[0].gid_count)));
}

TEST_F(DeviceTree, NamesTypeAndNetdevOfEveryGid) {
  for (uint32_t i = 0; i < table_.devices[0].ports[0].gid_count; ++i) {
    const std::string n = std::to_string(i);
    EXPECT_EQ(port("gid_attrs/types/" + n), "RoCE v2");
    EXPECT_EQ(port("gid_attrs/ndevs/" + n), table_.devices[0].ports[0].gids[i].interface_name.data());
    EXPECT_LT(port("gid_attrs/ndevs/" + n).size(), 16u);
  }
}

TEST_F(DeviceTree, NamesTheNetdevThatBelongsToTheAdapter) {
  const GidEntry& gid = table_.devices[0].ports[0].gids[0];
  const std::string folder = std::string("infiniband/verbena0/device/net/") + gid.interface_name.data();
  EXPECT_EQ(line(folder + "/ifindex"), std::to_string(gid.interface_index));
}

TEST_F(DeviceTree, HasTheDefaultPkey) {
  unsigned short pkey = 0;
  const std::string text = whole("infiniband/verbena0/ports/1/pkeys/0");
  ASSERT_LT(text.size(), 8u);
  ASSERT_EQ(std::sscanf(text.c_str(), "%hx", &pkey), 1);
  EXPECT_EQ(pkey, 0xffff);
}

TEST_F(DeviceTree, ShowsAnActivePort) {
  EXPECT_EQ(port("state"), "4: ACTIVE");
  EXPECT_EQ(port("phys_state"), "5: LinkUp");
  EXPECT_EQ(port("link_layer"), "Ethernet");
  EXPECT_EQ(port("lid"), "0x0");
  EXPECT_EQ(port("rate"), "200 Gb/sec (4X HDR)");
}

TEST_F(DeviceTree, SaysOfThePortWhatVerbsSay) {
  ibv_port_attr attr;
  describe_port(table_.devices[0], 1, false, &attr);
  EXPECT_EQ(std::stoul(port("state")), static_cast<unsigned long>(attr.state));
  EXPECT_EQ(std::stoul(port("phys_state")), attr.phys_state);
  EXPECT_EQ(std::stoul(port("cap_mask"), nullptr, 16), attr.port_cap_flags);
  EXPECT_EQ(std::stoul(port("lid"), nullptr, 16), attr.lid);
  EXPECT_EQ(std::stoul(port("sm_lid"), nullptr, 16), attr.sm_lid);
  EXPECT_EQ(std::stoul(port("sm_sl")), attr.sm_sl);
  EXPECT_EQ(std::stoul(port("lid_mask_count")), attr.lmc);
  // enum ib_port_speed and ib_port_width of include/rdma/ib_verbs.h
  EXPECT_EQ(attr.active_speed, 64) << "HDR";
  EXPECT_EQ(attr.active_width, 2) << "4X";
}

TEST_F(DeviceTree, ShowsTheCountersOfThePort) {
  for (const char* name : kHwCounterNames) EXPECT_EQ(port(std::string("hw_counters/") + name), "0");
  for (const char* name : kPmaCounterNames) EXPECT_EQ(port(std::string("counters/") + name), "0");
  ASSERT_EQ(show_counter(root_, table_.devices[0], 1, "hw_counters/sent_bytes", UINT64_MAX), 0);
  ASSERT_EQ(show_counter(root_, table_.devices[0], 1, "counters/port_rcv_data", 7), 0);
  EXPECT_EQ(port("counters/port_rcv_data"), "7");
  EXPECT_EQ(port("hw_counters/sent_bytes"), "18446744073709551615");
  EXPECT_EQ(port("hw_counters/rcvd_bytes"), "0");
  EXPECT_EQ(line("infiniband/verbena1/ports/1/hw_counters/sent_bytes"), "0");
  EXPECT_TRUE(device_tree_is_whole(root_, table_));
}

TEST_F(DeviceTree, SaysOfTheDeviceWhatVerbsSay) {
  ibv_device_attr_ex attr;
  describe_device(table_.devices[0], &attr);
  EXPECT_EQ(line("infiniband/verbena0/fw_ver"), attr.orig_attr.fw_ver);
  EXPECT_EQ(std::stoul(line("infiniband/verbena0/hw_rev"), nullptr, 16), attr.orig_attr.hw_ver);
  EXPECT_EQ(line("infiniband/verbena0/sys_image_guid"), line("infiniband/verbena0/node_guid"));
  EXPECT_EQ(attr.orig_attr.sys_image_guid, attr.orig_attr.node_guid);
}

TEST_F(DeviceTree, LeadsFromTheDeviceBackToItsDeviceFile) {
  // find_uverbs_sysfs() opens the first folder there that does not begin with a dot.
  const fs::path folder = root_ + "/sys/class/infiniband/verbena1/device/infiniband_verbs";
  ASSERT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  EXPECT_TRUE(fs::is_directory(folder / "uverbs1"));
  EXPECT_EQ(line("infiniband/verbena1/device/infiniband_verbs/uverbs1/ibdev"), "verbena1");
}

TEST_F(DeviceTree, PretendsToNoPciDevice) {
  const std::string device = root_ + "/sys/class/infiniband/verbena0/device/";
  for (const char* name : {"vendor", "device", "class", "config", "resource"})
    EXPECT_FALSE(fs::exists(device + name)) << name;
  EXPECT_NE(line("infiniband/verbena0/device/modalias").substr(0, 4), "pci:");
}

TEST_F(DeviceTree, HasOnlyLinksThatLeadSomewhereWithinTheTree) {
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    if (!entry.is_symlink()) continue;
    EXPECT_TRUE(fs::read_symlink(entry).is_relative()) << entry.path();
    ASSERT_TRUE(fs::exists(entry)) << entry.path();
    EXPECT_EQ(fs::canonical(entry).string().rfind(fs::canonical(root_).string() + "/sys/class/", 0), 0u);
  }
}

TEST_F(DeviceTree, OnInfinibandHasALidAndNoNetdev) {
  const std::string folder = root_ + "/ib";
  ASSERT_TRUE(fs::create_directory(folder));
  ASSERT_EQ(write_device_tree(folder, describe_devices({.link_layer = LinkLayer::kInfiniband})), 0);
  root_ += "/ib";
  EXPECT_EQ(port("link_layer"), "InfiniBand");
  EXPECT_EQ(port("lid"), "0x1");
  EXPECT_EQ(port("gid_attrs/types/0"), "IB/RoCE v1");
  EXPECT_TRUE(fs::is_empty(root_ + "/sys/class/infiniband/verbena0/ports/1/gid_attrs/ndevs"));
  EXPECT_FALSE(fs::exists(root_ + "/sys/class/infiniband/verbena0/device/net"));
  root_.resize(root_.size() - 3);
}

TEST_F(DeviceTree, RefusesToWriteOverATree) { EXPECT_EQ(write_device_tree(root_, table_), EEXIST); }

TEST_F(DeviceTree, IsWholeWhenWritten) { EXPECT_TRUE(device_tree_is_whole(root_, table_)); }

TEST_F(DeviceTree, IsNotWholeOnceACleanerHasBeenThere) {
  ASSERT_TRUE(fs::remove(root_ + "/sys/class/infiniband/verbena1/ports/1/gids/0"));
  EXPECT_FALSE(device_tree_is_whole(root_, table_));
}

TEST_F(DeviceTree, IsNotWholeWhenAnotherVersionWroteIt) {
  const std::string path = root_ + "/sys/class/infiniband/verbena0/fw_ver";
  ASSERT_TRUE(fs::remove(path));
  std::ofstream(path) << "0.0.1\n";
  EXPECT_FALSE(device_tree_is_whole(root_, table_));
}

TEST_F(DeviceTree, SaysWhenThereIsNoFolder) { EXPECT_EQ(write_device_tree(root_ + "/none", table_), ENOENT); }

TEST(DeviceTreeUmask, TheUmaskHasNoSay) {
  const TemporaryFolder folder;
  const mode_t before = umask(0777);
  const int error = write_device_tree(folder.path(), describe_devices({}));
  umask(before);
  EXPECT_EQ(error, 0);
  struct stat status;
  ASSERT_EQ(stat((folder.path() + "/sys/class/infiniband/verbena0/node_type").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0444u);
}

}  // namespace
}  // namespace verbena
