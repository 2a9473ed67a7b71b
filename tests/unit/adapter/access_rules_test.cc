// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/access_rules.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace verbena {
namespace {

constexpr int kPlainFlags = 0xff;  // LOCAL_WRITE to HUGETLB

// ---- registering --------------------------------------------------------------------------------------

int expected_refusal(int access) {
  const bool remote_writing = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  if (remote_writing && !(access & IBV_ACCESS_LOCAL_WRITE)) return EINVAL;
  return 0;
}

TEST(MrAccess, EveryCombinationFollowsTheManualPage) {
  for (int access = 0; access <= kPlainFlags; ++access)
    EXPECT_EQ(check_mr_access(access, nullptr), expected_refusal(access)) << std::hex << access;
}

TEST(MrAccess, OptionalFlagsAreHints) {
  for (int position = 20; position <= 29; ++position)
    EXPECT_EQ(check_mr_access(1 << position, nullptr), 0) << position;
}

TEST(MrAccess, BitsThatAreNoFlagAreRefused) {
  for (const int position : {8, 9, 15, 19, 30, 31})
    EXPECT_EQ(check_mr_access(static_cast<int>(1u << position), nullptr), EINVAL) << position;
}

TEST(MrAccess, RefusalNamesTheRule) {
  const char* why = nullptr;
  check_mr_access(IBV_ACCESS_REMOTE_WRITE, &why);
  ASSERT_NE(why, nullptr);
  EXPECT_NE(std::string(why).find("IBV_ACCESS_LOCAL_WRITE"), std::string::npos) << why;
}

TEST(MrAccess, SuccessLeavesNoReason) {
  const char* why = "left over";
  EXPECT_EQ(check_mr_access(IBV_ACCESS_LOCAL_WRITE, &why), 0);
  EXPECT_EQ(why, nullptr);
}

TEST(MrAccess, WritableMemoryIsNeededForEveryKindOfWriting) {
  const struct {
    int access;
    bool needs;
  } rows[] = {{0, false},
              {IBV_ACCESS_REMOTE_READ, false},
              {IBV_ACCESS_ZERO_BASED, false},
              {IBV_ACCESS_RELAXED_ORDERING, false},
              {IBV_ACCESS_LOCAL_WRITE, true},
              {IBV_ACCESS_REMOTE_WRITE, true},
              {IBV_ACCESS_REMOTE_ATOMIC, true},
              {IBV_ACCESS_MW_BIND, true}};
  for (const auto& row : rows) EXPECT_EQ(needs_writable_memory(row.access), row.needs) << row.access;
}

TEST(MrRange, EndsAtTheEndOfTheAddressSpace) {
  const struct {
    uint64_t addr, length, iova;
    int refusal;
  } rows[] = {
      {0, 0, 0, 0},
      {0, UINT64_MAX, 0, 0},
      {1, UINT64_MAX, 0, 0},  // the last byte is the last address
      {2, UINT64_MAX, 0, EINVAL},
      {UINT64_MAX, 0, UINT64_MAX, 0},
      {UINT64_MAX, 1, 0, 0},
      {UINT64_MAX, 2, 0, EINVAL},
      {0, 1, UINT64_MAX, 0},
      {0, 2, UINT64_MAX, EINVAL},
      {0, 4096, UINT64_MAX - 4095, 0},
      {0, 4097, UINT64_MAX - 4095, EINVAL},
  };
  for (const auto& row : rows)
    EXPECT_EQ(check_mr_range(row.addr, row.length, row.iova, nullptr), row.refusal)
        << std::hex << row.addr << " + " << row.length << " at " << row.iova;
}

// ---- using --------------------------------------------------------------------------------------------

struct Bounds {
  uint64_t iova, length, at, size;
  bool inside;
};

void expect_bounds(const Bounds& b) {
  EXPECT_EQ(covers(b.iova, b.length, b.at, b.size), b.inside)
      << std::hex << "[" << b.at << ", +" << b.size << ") in [" << b.iova << ", +" << b.length << ")";
}

TEST(Covers, OneByteMoreOrLessAtEachEdge) {
  for (const uint64_t iova : {uint64_t{0x10000}, uint64_t{1}, UINT64_MAX - 0x1000}) {
    const uint64_t length = 0x1000;
    expect_bounds({iova, length, iova, length, true});
    expect_bounds({iova, length, iova, length - 1, true});
    expect_bounds({iova, length, iova, length + 1, false});
    expect_bounds({iova, length, iova - 1, length, false});
    expect_bounds({iova, length, iova - 1, 1, false});
    expect_bounds({iova, length, iova + 1, length - 1, true});
    expect_bounds({iova, length, iova + 1, length, false});
    expect_bounds({iova, length, iova + length - 1, 1, true});
    expect_bounds({iova, length, iova + length - 1, 2, false});
    expect_bounds({iova, length, iova + length, 1, false});
    expect_bounds({iova, length, iova + length + 1, 1, false});
  }
}

TEST(Covers, NothingWrapsAround) {
  expect_bounds({0x1000, 0x1000, 0x1800, UINT64_MAX, false});           // at + size wraps to below at
  expect_bounds({0x1000, 0x1000, 0x1800, UINT64_MAX - 0x17ff, false});  // at + size is 0
  expect_bounds({0x1000, 0x1000, UINT64_MAX, 2, false});
  expect_bounds({0x1000, 0x1000, UINT64_MAX, 0x1002, false});  // at + size lies inside
  expect_bounds({0x1000, 0x1000, 0, UINT64_MAX, false});
}

TEST(Covers, WholeAddressSpace) {
  expect_bounds({0, UINT64_MAX, 0, UINT64_MAX, true});
  expect_bounds({0, UINT64_MAX, 1, UINT64_MAX - 1, true});
  expect_bounds({0, UINT64_MAX, 1, UINT64_MAX, false});
  expect_bounds({UINT64_MAX, 1, UINT64_MAX, 1, true});  // the last byte: iova + length is 2^64
}

TEST(Covers, ZeroBasedRegion) {
  expect_bounds({0, 0x1000, 0, 0x1000, true});
  expect_bounds({0, 0x1000, 0xfff, 1, true});
  expect_bounds({0, 0x1000, 0x1000, 1, false});
}

TEST(Covers, EmptyRangeLiesInOrJustBehindTheRegion) {
  expect_bounds({0x1000, 0x1000, 0x1000, 0, true});
  expect_bounds({0x1000, 0x1000, 0x2000, 0, true});
  expect_bounds({0x1000, 0x1000, 0x0fff, 0, false});
  expect_bounds({0x1000, 0x1000, 0x2001, 0, false});
}

TEST(Covers, EmptyRegionHoldsNothing) { expect_bounds({0x1000, 0, 0x1000, 1, false}); }

struct Right {
  MemoryUse use;
  unsigned flag;
};

constexpr Right kRights[] = {{MemoryUse::local_gather, 0},
                             {MemoryUse::local_scatter, IBV_ACCESS_LOCAL_WRITE},
                             {MemoryUse::remote_write, IBV_ACCESS_REMOTE_WRITE},
                             {MemoryUse::remote_read, IBV_ACCESS_REMOTE_READ},
                             {MemoryUse::remote_atomic, IBV_ACCESS_REMOTE_ATOMIC}};

TEST(CheckUse, EachUseNeedsItsOwnRight) {
  for (const Right& right : kRights) {
    EXPECT_EQ(required_access(right.use), right.flag);
    EXPECT_EQ(check_use(right.flag, 0x1000, 16, right.use, 0x1000, 16), AccessCheck::ok) << right.flag;
  }
}

TEST(CheckUse, AllOtherRightsTogetherDoNotDo) {
  for (const Right& right : kRights) {
    if (right.flag == 0) continue;
    EXPECT_EQ(check_use(kPlainFlags & ~right.flag, 0x1000, 16, right.use, 0x1000, 16), AccessCheck::no_right)
        << right.flag;
  }
}

TEST(CheckUse, RangeIsAskedWithTheRightThere) {
  for (const Right& right : kRights)
    EXPECT_EQ(check_use(right.flag, 0x1000, 16, right.use, 0x1000, 17), AccessCheck::outside) << right.flag;
}

TEST(CheckUse, MissingRightIsToldBeforeTheRange) {
  EXPECT_EQ(check_use(0, 0x1000, 16, MemoryUse::remote_write, 0, 1), AccessCheck::no_right);
}

static_assert(covers(0, 1, 0, 1) && required_access(MemoryUse::local_gather) == 0,
              "usable in constant expressions");

}  // namespace
}  // namespace verbena
