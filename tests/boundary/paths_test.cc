// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/paths.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>

namespace verbena {
namespace {

constexpr char kNode[] = "/run/node";

struct Case {
  const char* path;
  Place place;
  const char* result;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.path; }

class JudgePath : public ::testing::TestWithParam<Case> {};

TEST_P(JudgePath, SaysWhereItIs) {
  char out[PATH_MAX] = "";
  EXPECT_EQ(judge_path(kNode, sizeof kNode - 1, GetParam().path, out, sizeof out), GetParam().place);
  EXPECT_STREQ(out, GetParam().result);
}

constexpr Place kElsewhere = Place::kElsewhere;
constexpr Place kNodePlace = Place::kNode;
constexpr Place kDevicePlace = Place::kDevice;
constexpr Place kLeft = Place::kLeft;

INSTANTIATE_TEST_SUITE_P(
    Table, JudgePath,
    ::testing::Values(
        Case{"/sys/class/infiniband", kNodePlace, "/run/node/sys/class/infiniband"},
        Case{"/sys/class/infiniband/", kNodePlace, "/run/node/sys/class/infiniband/"},
        Case{"/sys/class/infiniband/verbena0/node_guid", kNodePlace,
             "/run/node/sys/class/infiniband/verbena0/node_guid"},
        Case{"/sys/class/infiniband_verbs/uverbs0", kNodePlace,
             "/run/node/sys/class/infiniband_verbs/uverbs0"},
        Case{"/sys/class/infiniband_mad/umad0", kNodePlace, "/run/node/sys/class/infiniband_mad/umad0"},
        Case{"/sys/class/infiniband_cm", kNodePlace, "/run/node/sys/class/infiniband_cm"},
        Case{"/sys/class/misc/rdma_cm/abi_version", kNodePlace,
             "/run/node/sys/class/misc/rdma_cm/abi_version"},
        // Where a real adapter hangs below its PCI device.
        Case{"/sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0", kNodePlace,
             "/run/node/sys/devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0"},
        Case{"//sys///class//infiniband", kNodePlace, "/run/node/sys/class/infiniband"},
        Case{"/sys/./class/./infiniband/.", kNodePlace, "/run/node/sys/class/infiniband/."},
        Case{"/sys/class/net/../infiniband", kNodePlace, "/run/node/sys/class/infiniband"},
        Case{"/../sys/class/infiniband", kNodePlace, "/run/node/sys/class/infiniband"},
        Case{"/usr/../sys/class/infiniband", kNodePlace, "/run/node/sys/class/infiniband"},
        Case{"/sys/class/infiniband/../infiniband_verbs", kNodePlace, "/run/node/sys/class/infiniband_verbs"},
        // Inside, ".." behind a symbolic link is resolved by the kernel.
        Case{"/sys/class/infiniband_verbs/uverbs0/device/..", kNodePlace,
             "/run/node/sys/class/infiniband_verbs/uverbs0/device/.."},

        Case{"/dev/infiniband/uverbs0", kDevicePlace, "/run/node/dev/infiniband/uverbs0"},
        Case{"/dev//infiniband/./uverbs12", kDevicePlace, "/run/node/dev/infiniband/./uverbs12"},
        Case{"/dev/infiniband/uverbs0/", kDevicePlace, "/run/node/dev/infiniband/uverbs0/"},
        Case{"/dev/infiniband", kNodePlace, "/run/node/dev/infiniband"},
        Case{"/dev/infiniband/rdma_cm", Place::kManager, "/run/node/dev/infiniband/rdma_cm"},
        Case{"/dev/infiniband/rdma_cm2", kNodePlace, "/run/node/dev/infiniband/rdma_cm2"},
        Case{"/dev/infiniband/uverbs", kNodePlace, "/run/node/dev/infiniband/uverbs"},
        Case{"/dev/infiniband/uverbs0x", kNodePlace, "/run/node/dev/infiniband/uverbs0x"},
        Case{"/dev/infiniband/uverbs0/x", kNodePlace, "/run/node/dev/infiniband/uverbs0/x"},

        Case{"/sys/class/infiniband/..", kLeft, "/sys/class"},
        Case{"/sys/class/infiniband/verbena0/../..", kLeft, "/sys/class"},
        Case{"/sys/class/infiniband/verbena0/../../net/lo/", kLeft, "/sys/class/net/lo/"},
        Case{"/sys/class/infiniband/../../../..", kLeft, "/"},

        Case{"/", kElsewhere, ""}, Case{"/sys/class", kElsewhere, ""},
        Case{"/sys/class/net/lo", kElsewhere, ""}, Case{"/sys/class/infinibandwidth", kElsewhere, ""},
        Case{"/sys/module/rdma_cm", kElsewhere, ""}, Case{"/dev/infiniband2/uverbs0", kElsewhere, ""},
        Case{"/home/infiniband/sys/class", kElsewhere, ""}, Case{"/etc/infiniband", kElsewhere, ""},
        Case{"/run/node/sys/class/infiniband", kElsewhere, ""}));

TEST(JudgePathLimits, ALongResultIsTooLong) {
  char out[32];
  EXPECT_EQ(judge_path(kNode, sizeof kNode - 1, "/sys/class/infiniband/verbena0", out, sizeof out),
            Place::kTooLong);
}

TEST(JudgePathLimits, ALongPathIsTooLong) {
  char out[PATH_MAX];
  const std::string path = "/sys/class/infiniband/" + std::string(PATH_MAX, 'x');
  EXPECT_EQ(judge_path(kNode, sizeof kNode - 1, path.c_str(), out, sizeof out), Place::kTooLong);
}

TEST(MayConcernNode, TrueForTheBoundarysWords) {
  for (const char* path : {"/sys/class/infiniband", "infiniband_verbs/uverbs0", "uverbs0", "../misc/rdma_cm"})
    EXPECT_TRUE(may_concern_node(path)) << path;
}

TEST(MayConcernNode, FalseForOthers) {
  for (const char* path :
       {"", "/", "/usr/lib/libibverbs.so.1", "/sys/class/net", "infinib", "uverb", "rdma_c"})
    EXPECT_FALSE(may_concern_node(path)) << path;
  EXPECT_FALSE(may_concern_node(nullptr));
}

TEST(IsUverbsName, TakesANumberAndNothingElse) {
  EXPECT_TRUE(is_uverbs_name("uverbs0"));
  EXPECT_TRUE(is_uverbs_name("uverbs255"));
  for (const char* name : {"", "uverbs", "uverbs0/", "uverbs-1", "uverbs1a", "/uverbs0", "umad0"})
    EXPECT_FALSE(is_uverbs_name(name)) << name;
}

}  // namespace
}  // namespace verbena
