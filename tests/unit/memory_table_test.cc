// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/memory_table.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <set>

namespace verbena {
namespace {

constexpr uint32_t kPd = 4;
constexpr uint64_t kIova = 0x10000, kLength = 4096, kAddress = 0x7f0000000000;

class Table : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(segment_.create(1, 0, 1), 0);
    add(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &lkey_, &rkey_);
  }
  void add(uint32_t access, uint32_t* lkey, uint32_t* rkey) {
    ASSERT_EQ(table_.add(segment_, {kPd, access, kIova, kLength, kAddress}, lkey, rkey), 0);
  }
  Translation look_up(uint32_t key, bool remote, MemoryUse use, uint64_t at = kIova, uint64_t size = 1,
                      uint32_t pd = kPd) {
    return translate(segment_.view(), key, remote, pd, use, at, size);
  }
  KeyCheck check(uint64_t at, uint64_t size) {
    return look_up(rkey_, true, MemoryUse::remote_write, at, size).check;
  }

  OwnSegment segment_;
  MemoryTable table_;
  uint32_t lkey_ = 0, rkey_ = 0;
};

TEST_F(Table, NeverGivesTheSameKeyTwiceToOneRegion) { EXPECT_NE(lkey_, rkey_); }

TEST_F(Table, NeverGivesZero) {
  EXPECT_NE(lkey_, 0u);
  EXPECT_NE(rkey_, 0u);
}

TEST_F(Table, GivesManyRegionsDifferentKeys) {
  std::set<uint32_t> keys{lkey_, rkey_};
  for (int i = 0; i < 1000; ++i) {
    uint32_t lkey, rkey;
    add(0, &lkey, &rkey);
    EXPECT_TRUE(keys.insert(lkey).second);
    EXPECT_TRUE(keys.insert(rkey).second);
  }
}

TEST_F(Table, TranslatesFromIovaToAddress) {
  const Translation place = look_up(rkey_, true, MemoryUse::remote_write, kIova + 100, 50);
  EXPECT_EQ(place.check, KeyCheck::kOk);
  EXPECT_EQ(place.address, kAddress + 100);
}

TEST_F(Table, TakesTheWholeRegionAndNotAByteMore) {
  EXPECT_EQ(check(kIova, kLength), KeyCheck::kOk);
  EXPECT_EQ(check(kIova, kLength + 1), KeyCheck::kOutside);
  EXPECT_EQ(check(kIova - 1, 1), KeyCheck::kOutside);
  EXPECT_EQ(check(kIova + kLength, 1), KeyCheck::kOutside);
}

TEST_F(Table, IsNotFooledByARangeThatWraps) {
  EXPECT_EQ(check(kIova + 1, UINT64_MAX), KeyCheck::kOutside);
  EXPECT_EQ(check(UINT64_MAX, 2), KeyCheck::kOutside);
}

TEST_F(Table, TakesEitherKeyOnlyForItsSide) {
  EXPECT_EQ(look_up(lkey_, true, MemoryUse::remote_write).check, KeyCheck::kUnknown);
  EXPECT_EQ(look_up(rkey_, false, MemoryUse::local_gather).check, KeyCheck::kUnknown);
}

TEST_F(Table, TakesAKeyOnlyInItsDomain) {
  EXPECT_EQ(look_up(rkey_, true, MemoryUse::remote_write, kIova, 1, kPd + 1).check, KeyCheck::kOtherPd);
}

TEST_F(Table, AsksForTheRightToEachUse) {
  EXPECT_EQ(look_up(rkey_, true, MemoryUse::remote_read).check, KeyCheck::kNoRight);
  EXPECT_EQ(look_up(rkey_, true, MemoryUse::remote_atomic).check, KeyCheck::kNoRight);
  EXPECT_EQ(look_up(lkey_, false, MemoryUse::local_scatter).check, KeyCheck::kOk);
  uint32_t lkey, rkey;
  add(0, &lkey, &rkey);
  EXPECT_EQ(look_up(lkey, false, MemoryUse::local_gather).check, KeyCheck::kOk);
  EXPECT_EQ(look_up(lkey, false, MemoryUse::local_scatter).check, KeyCheck::kNoRight);
}

TEST_F(Table, KnowsNoKeyItNeverGave) {
  for (uint32_t key : {0u, 0x100u, 0x1ffu, rkey_ + 0x200, rkey_ + 1, 0xffffffffu})
    EXPECT_EQ(look_up(key, true, MemoryUse::remote_write).check, KeyCheck::kUnknown) << key;
}

TEST_F(Table, RefusesAKeyAfterItsEnd) {
  table_.invalidate(segment_, lkey_);
  EXPECT_EQ(look_up(rkey_, true, MemoryUse::remote_write).check, KeyCheck::kUnknown);
  EXPECT_EQ(look_up(lkey_, false, MemoryUse::local_gather).check, KeyCheck::kUnknown);
}

TEST_F(Table, BeginsANewEpochWhenAKeyEnds) {
  const uint32_t before = segment_.view().header().mr_epoch.load();
  table_.invalidate(segment_, lkey_);
  EXPECT_NE(segment_.view().header().mr_epoch.load(), before);
}

// A place of the table is used again after a while; keys of its earlier regions stay dead for 255 uses.
TEST_F(Table, RefusesAnOldKeyWhenItsPlaceIsUsedAgain) {
  std::set<uint32_t> given;
  uint32_t lkey = lkey_, rkey = rkey_;
  bool reused = false;
  for (int i = 0; i < 2000; ++i) {
    table_.invalidate(segment_, lkey);
    table_.recycle(lkey);
    add(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &lkey, &rkey);
    ASSERT_TRUE(given.insert(rkey).second) << "a key came back after " << i << " regions";
    reused |= MemoryKey::unpack(rkey).index == MemoryKey::unpack(rkey_).index;
    ASSERT_EQ(look_up(rkey_, true, MemoryUse::remote_write).check, KeyCheck::kUnknown);
  }
  EXPECT_TRUE(reused);
}

TEST_F(Table, KeepsTheOthersWhenOneEnds) {
  uint32_t lkey, rkey;
  add(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &lkey, &rkey);
  table_.invalidate(segment_, lkey_);
  EXPECT_EQ(look_up(rkey, true, MemoryUse::remote_write).check, KeyCheck::kOk);
}

}  // namespace
}  // namespace verbena
