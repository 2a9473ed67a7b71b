// SPDX-License-Identifier: BSD-2-Clause
//
// Programs of the machine, under the preload with a node.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "node_fixture.h"
#include "run.h"

namespace verbena::testing {
namespace {

const std::string kGuidLine = std::string(kNodeGuid) + "\n";

bool installed(const std::string& program) { return run("command -v " + program).status == 0; }

#define NEEDS(program) \
  if (!installed(program)) GTEST_SKIP() << program << " is not installed"

TEST(Programs, ShellPipeline) {
  const Outcome outcome = run("cat /sys/class/infiniband/*/node_guid | grep 0203");
  EXPECT_EQ(outcome.output, kGuidLine);
}

TEST(Programs, BashRedirectionAndTests) {
  NEEDS("bash");
  const Outcome outcome = run(
      "bash -c '[[ -c /dev/infiniband/uverbs0 && -d /sys/class/infiniband ]] && cd /sys/class/infiniband && "
      "read guid < verbena0/node_guid && echo $guid'");
  EXPECT_EQ(outcome.output, kGuidLine);
}

TEST(Programs, LsShowsTheDeviceFile) {
  const Outcome outcome = run("ls -l /dev/infiniband/");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("1, 7"), std::string::npos) << outcome.output;
}

TEST(Programs, FindFindsTheDeviceFile) {
  NEEDS("find");
  EXPECT_EQ(run("find /dev/infiniband -type c").output, "/dev/infiniband/uverbs0\n");
}

TEST(Programs, Python) {
  const char* python = "/usr/bin/python3";
  NEEDS(python);
  const Outcome outcome = run(std::string(python) + R"( -c "
import os, stat
print(os.listdir('/sys/class/infiniband'))
print(stat.S_ISCHR(os.stat('/dev/infiniband/uverbs0').st_mode))
print(open('/sys/class/infiniband/verbena0/node_guid').read().strip())
print(os.path.realpath('/sys/class/infiniband_verbs/uverbs0/device'))
print(os.path.exists('/sys/class/infiniband/mlx5_0'))
")");
  EXPECT_EQ(outcome.output,
            "['verbena0']\nTrue\n" + kGuidLine + "/sys/class/infiniband/verbena0/device\nFalse\n");
}

TEST(Programs, PythonsSubprocesses) {
  const char* python = "/usr/bin/python3";
  NEEDS(python);
  const Outcome outcome = run(std::string(python) + R"( -c "
import subprocess
print(subprocess.run(['cat', '/sys/class/infiniband/verbena0/node_guid'], capture_output=True).stdout.decode(), end='')
")");
  EXPECT_EQ(outcome.output, kGuidLine);
}

TEST(Programs, UnderGccsAddressSanitizer) {
  const Outcome outcome = run("ASAN_OPTIONS=verify_asan_link_order=0 " VERBENA_ASAN_READER);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, kGuidLine + "/sys/class/infiniband/verbena0/device\n");
}

TEST(Programs, AnAllocatorThatOpensFilesBeforeAnyConstructor) {
  const Outcome outcome = run("LD_PRELOAD='" VERBENA_PRELOAD " " VERBENA_EARLY_ALLOCATOR
                              "' cat /sys/class/infiniband/verbena0/node_guid");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "allocator awake\n" + kGuidLine);
}

constexpr const char* kListedDevice = "verbena0        \t0001020304050607";

// libibverbs asks over netlink first. That loads the provider, whose driver registers itself, and is refused,
// because this node is a tree of files only. Then libibverbs reads the tree.
TEST(Programs, StockIbvDevicesFindsTheDevice) {
  NEEDS("ibv_devices");
  const Outcome outcome = run("IBV_SHOW_WARNINGS=1 ibv_devices");
  EXPECT_NE(outcome.output.find(kListedDevice), std::string::npos) << outcome.output;
}

TEST(Programs, StockIbvDevicesWithSysfsPathSet) {
  NEEDS("ibv_devices");
  for (const char* path : {"/sys", "/sys/", "//sys"}) {
    const Outcome outcome = run(std::string("IBV_SHOW_WARNINGS=1 SYSFS_PATH=") + path + " ibv_devices");
    EXPECT_NE(outcome.output.find(kListedDevice), std::string::npos) << path << ": " << outcome.output;
  }
}

TEST(Programs, JavaVirtualMachine) {
  NEEDS("java");
  const Outcome outcome = run("java -Xshare:auto -Xint -version");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Programs, WithoutANodeNothingIsChanged) {
  const Outcome with = run("env -u VERBENA_NODE ls /sys/class/infiniband /dev/infiniband");
  const Outcome without = run("env -u VERBENA_NODE -u LD_PRELOAD ls /sys/class/infiniband /dev/infiniband");
  EXPECT_EQ(with.output, without.output);
}

TEST(Programs, AnotherUsersNodeIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const std::string node = make_node();
  ASSERT_EQ(chown(node.c_str(), 12345, 12345), 0);
  const Outcome with =
      run("VERBENA_LOG=none VERBENA_NODE=" + node + " ls /sys/class/infiniband /dev/infiniband");
  const Outcome without = run("env -u VERBENA_NODE -u LD_PRELOAD ls /sys/class/infiniband /dev/infiniband");
  EXPECT_EQ(with.output, without.output);
  const Outcome said = run("VERBENA_NODE=" + node + " /bin/true");
  EXPECT_NE(said.output.find(node + " is not a folder of uid 0 (owner: uid 12345)"), std::string::npos)
      << said.output;
  remove_folder(node);
}

TEST(Programs, ANodeThatIsGoneHidesTheMachinesDevices) {
  EXPECT_NE(run("VERBENA_NODE=/nonexistent ls /sys/class/infiniband").status, 0);
}

}  // namespace
}  // namespace verbena::testing
