// SPDX-License-Identifier: BSD-2-Clause
//
// What google/rdma-unit-test is told about verbena0: every capability that it asks for is claimed, no test is
// excused, and there are no counters to look at. In place of the suite's introspection.cc, which knows the
// devices of four vendors, and of its main().
#include <optional>
#include <string>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "infiniband/verbs.h"
#include "public/flags.h"
#include "public/introspection.h"
#include "public/verbs_util.h"

ABSL_FLAG(bool, brief, true,
          "Repeat as often as on a slow device: otherwise some tests send millions of messages.");

namespace rdma_unit_test {
namespace {

class Verbena : public NicIntrospection {
 public:
  using NicIntrospection::NicIntrospection;

  bool SupportsReRegMr() const override { return true; }
  bool IsSlowNic() const override { return absl::GetFlag(FLAGS_brief); }
};

}  // namespace

const NicIntrospection& Introspection() {
  static const NicIntrospection* const device = [] {
    absl::StatusOr<ibv_context*> context = verbs_util::OpenUntrackedDevice(absl::GetFlag(FLAGS_device_name));
    CHECK_OK(context);
    ibv_device_attr attributes;
    CHECK_EQ(ibv_query_device(*context, &attributes), 0);
    const std::string name = (*context)->device->name;
    CHECK_EQ(ibv_close_device(*context), 0);
    return new Verbena(name, attributes);
  }();
  return *device;
}

std::optional<std::string> NicIntrospection::KnownIssue() const { return std::nullopt; }
bool NicIntrospection::HasCounter(HardwareCounter) const { return false; }
absl::StatusOr<uint64_t> NicIntrospection::GetCounterValue(HardwareCounter) const {
  return absl::NotFoundError("none");
}
NicIntrospection::CounterSnapshot NicIntrospection::GetCounterSnapshot() const { return {}; }
std::string NicIntrospection::DumpHardwareCounters() const { return ""; }
std::string NicIntrospection::sysfs_device_name() const { return name_; }

}  // namespace rdma_unit_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  absl::InstallFailureSignalHandler({});
  absl::ParseCommandLine(argc, argv);
  return RUN_ALL_TESTS();
}
