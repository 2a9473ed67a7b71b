// SPDX-License-Identifier: BSD-2-Clause
//
// The table of limits, and the rules between them.
#include "fabric/device_limits.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fabric/node.h"

namespace verbena {
namespace {

TEST(DeviceLimits, OfTheDefaultDeviceAreWithinTheirBounds) {
  const DeviceLimits limits;
  for (const Limit& limit : all_limits()) {
    EXPECT_GE(limits.*limit.value, limit.least) << limit.name;
    EXPECT_LE(limits.*limit.value, limit.most) << limit.name;
  }
}

TEST(DeviceLimits, OfTheDefaultDeviceKeepTheRules) {
  const Limit* field = nullptr;
  EXPECT_EQ(check_limits({}, &field), nullptr);
}

TEST(DeviceLimits, StandInTheTableOnceEach) {
  std::set<std::string_view> names;
  for (const Limit& limit : all_limits()) EXPECT_TRUE(names.insert(limit.name).second) << limit.name;
  EXPECT_EQ(names.size() * sizeof(uint64_t) + sizeof(DeviceLimits{}.profile), sizeof(DeviceLimits));
}

TEST(DeviceLimits, SayWhichFieldBreaksARule) {
  DeviceLimits limits;
  limits.max_sge_rd = limits.max_sge + 1;
  const Limit* field = nullptr;
  EXPECT_STREQ(check_limits(limits, &field), "max_sge_rd is at most max_sge");
  ASSERT_NE(field, nullptr);
  EXPECT_EQ(field->name, "max_sge_rd");
}

TEST(DeviceLimits, EveryFieldChangesTheFingerprint) {
  const uint64_t plain = fingerprint({});
  for (const Limit& limit : all_limits()) {
    DeviceLimits other;
    other.*limit.value += 1;
    EXPECT_NE(fingerprint(other), plain) << limit.name;
  }
}

TEST(DeviceLimits, OtherLimitsAreAnotherNode) {
  DeviceTableOptions other;
  other.limits.max_qp = 3;
  EXPECT_NE(node_path("", other), node_path("", {}));
}

}  // namespace
}  // namespace verbena
