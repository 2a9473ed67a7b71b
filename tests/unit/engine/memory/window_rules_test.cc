// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/window_rules.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

constexpr uint32_t kWindowPd = 4;
constexpr uint32_t kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

struct WindowCase {
  const char* name;
  WindowState window{KeyKind::kWindow2, kWindowPd, false, kWindowPd};
  MemoryTable::Region region{
      .pd = kWindowPd, .access = kBindable, .iova = 0x1000, .length = 0x1000, .address = 0x7000};
  bool has_region = true;
  Binding binding{0x1100, 0x100, IBV_ACCESS_REMOTE_WRITE};
  bool allowed = false;
};

template <typename Change>
WindowCase with(const char* name, bool allowed, Change change) {
  WindowCase c{.name = name};
  c.allowed = allowed;
  change(c);
  return c;
}

const WindowCase kCases[] = {
    with("Plain", true, [](WindowCase&) {}),
    with("Type1", true, [](WindowCase& c) { c.window.kind = KeyKind::kWindow1; }),
    with("WholeRegion", true,
         [](WindowCase& c) {
           c.binding = {0x1000, 0x1000, IBV_ACCESS_REMOTE_READ};
         }),
    with("NoAccess", true, [](WindowCase& c) { c.binding.access = 0; }),
    with("ZeroBasedType2", true, [](WindowCase& c) { c.binding.access |= IBV_ACCESS_ZERO_BASED; }),
    with("ZeroBasedType1", false,
         [](WindowCase& c) {
           c.window.kind = KeyKind::kWindow1;
           c.binding.access |= IBV_ACCESS_ZERO_BASED;
         }),
    with("LocalWrite", true, [](WindowCase& c) { c.binding.access |= IBV_ACCESS_LOCAL_WRITE; }),
    with("FlagsOfARegion", false, [](WindowCase& c) { c.binding.access |= IBV_ACCESS_MW_BIND; }),
    with("BoundType2", false, [](WindowCase& c) { c.window.is_bound = true; }),
    with("BoundType1", true,
         [](WindowCase& c) {
           c.window.kind = KeyKind::kWindow1;
           c.window.is_bound = true;
         }),
    with("NothingType2", false, [](WindowCase& c) { c.binding.length = 0; }),
    with("NothingType1", true,
         [](WindowCase& c) {
           c.window.kind = KeyKind::kWindow1;
           c.binding.length = 0;
           c.has_region = false;
         }),
    with("NoRegion", false, [](WindowCase& c) { c.has_region = false; }),
    with("NullRegion", false, [](WindowCase& c) { c.region.kind = KeyKind::kNullRegion; }),
    with("QpOfAnotherPd", false, [](WindowCase& c) { c.window.qp_pd = kWindowPd + 1; }),
    with("RegionOfAnotherPd", false, [](WindowCase& c) { c.region.pd = kWindowPd + 1; }),
    with("RegionWithoutBindRight", false, [](WindowCase& c) { c.region.access = IBV_ACCESS_LOCAL_WRITE; }),
    with("WriteToAReadOnlyRegion", false, [](WindowCase& c) { c.region.access = IBV_ACCESS_MW_BIND; }),
    with("AtomicOnAReadOnlyRegion", false,
         [](WindowCase& c) {
           c.region.access = IBV_ACCESS_MW_BIND;
           c.binding.access = IBV_ACCESS_REMOTE_ATOMIC;
         }),
    with("ReadOfAReadOnlyRegion", true,
         [](WindowCase& c) {
           c.region.access = IBV_ACCESS_MW_BIND;
           c.binding.access = IBV_ACCESS_REMOTE_READ;
         }),
    with("ZeroBasedRegion", false, [](WindowCase& c) { c.region.access |= IBV_ACCESS_ZERO_BASED; }),
    with("BeforeTheRegion", false, [](WindowCase& c) { c.binding.address = 0xfff; }),
    with("BehindTheRegion", false, [](WindowCase& c) { c.binding.address = 0x1f01; }),
    with("RangeThatWraps", false, [](WindowCase& c) { c.binding.length = UINT64_MAX; }),
};

class BindRules : public ::testing::TestWithParam<WindowCase> {};
INSTANTIATE_TEST_SUITE_P(Table, BindRules, ::testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

TEST_P(BindRules, Hold) {
  const WindowCase& c = GetParam();
  EXPECT_EQ(check_binding(c.window, c.has_region ? &c.region : nullptr, c.binding) == nullptr, c.allowed);
}

TEST(BoundRegion, LiesWhereTheBindingSays) {
  const WindowCase c{.name = ""};
  const MemoryTable::Region window = bound_region(c.window, c.region, c.binding);
  EXPECT_EQ(window.iova, 0x1100u);
  EXPECT_EQ(window.address, 0x7100u);
  EXPECT_EQ(window.length, 0x100u);
  EXPECT_EQ(window.access, c.binding.access);
  EXPECT_EQ(window.kind, KeyKind::kWindow2);
}

TEST(BoundRegion, BeginsAtZeroIfZeroBased) {
  WindowCase c{.name = ""};
  c.binding.access |= IBV_ACCESS_ZERO_BASED;
  const MemoryTable::Region window = bound_region(c.window, c.region, c.binding);
  EXPECT_EQ(window.iova, 0u);
  EXPECT_EQ(window.address, 0x7100u);
}

}  // namespace
}  // namespace verbena
