// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/memory_table.h"
#include "adapter/known_region.h"

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

// An entry of the table is reused after a while; keys of its earlier regions stay invalid for 255 uses.
TEST_F(Table, RefusesAnOldKeyWhenItsPlaceIsUsedAgain) {
  std::set<uint32_t> given;
  uint32_t lkey = lkey_, rkey = rkey_;
  bool reused = false;
  for (int i = 0; i < 2000; ++i) {
    table_.invalidate(segment_, lkey);
    table_.recycle(segment_, lkey);
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

// ---- windows and the null region ----

constexpr uint32_t kQpn = 0x123;

class WindowTable : public Table {
 protected:
  // A window, bound under `tag` for kQpn.
  uint32_t bind(KeyKind kind, uint8_t tag = 0x42) {
    uint32_t first = 0;
    EXPECT_EQ(table_.add_window(segment_, kind, kPd, &first), 0);
    const uint32_t rkey = (first & ~0xffu) | tag;
    table_.bind_window(segment_, rkey, {kPd, IBV_ACCESS_REMOTE_WRITE, kIova, kLength, kAddress, kind}, kQpn, 1);
    return rkey;
  }
  KeyCheck check_window(uint32_t rkey, uint32_t qpn = kQpn, MemoryUse use = MemoryUse::remote_write,
                        uint32_t pd = kPd) {
    return translate(segment_.view(), rkey, true, pd, use, kIova, 1, qpn).check;
  }
};

TEST_F(WindowTable, AWindowThatIsNotBoundIsUnknown) {
  uint32_t rkey = 0;
  ASSERT_EQ(table_.add_window(segment_, KeyKind::kWindow1, kPd, &rkey), 0);
  EXPECT_EQ(check_window(rkey), KeyCheck::kUnknown);
}

TEST_F(WindowTable, ABoundWindowTranslates) {
  const Translation place = translate(segment_.view(), bind(KeyKind::kWindow2), true, kPd,
                                      MemoryUse::remote_write, kIova + 8, 8, kQpn);
  EXPECT_EQ(place.check, KeyCheck::kOk);
  EXPECT_EQ(place.address, kAddress + 8);
}

TEST_F(WindowTable, OnlyTheTagItWasBoundWithIsItsKey) {
  const uint32_t rkey = bind(KeyKind::kWindow2, 0x42);
  EXPECT_EQ(check_window(rkey + 1), KeyCheck::kUnknown);
}

TEST_F(WindowTable, Type2IsForItsQpOnly) {
  EXPECT_EQ(check_window(bind(KeyKind::kWindow2), kQpn + 1), KeyCheck::kOtherQp);
}

TEST_F(WindowTable, Type1IsForEveryQpOfThePd) {
  const uint32_t rkey = bind(KeyKind::kWindow1);
  EXPECT_EQ(check_window(rkey, kQpn + 1), KeyCheck::kOk);
  EXPECT_EQ(check_window(rkey, kQpn, MemoryUse::remote_write, kPd + 1), KeyCheck::kOtherPd);
}

TEST_F(WindowTable, AWindowHasItsOwnRights) {
  EXPECT_EQ(check_window(bind(KeyKind::kWindow2), kQpn, MemoryUse::remote_read), KeyCheck::kNoRight);
}

TEST_F(WindowTable, AWindowEnds) {
  const uint32_t rkey = bind(KeyKind::kWindow2);
  EXPECT_EQ(
      translate(segment_.view(), rkey, true, kPd, MemoryUse::remote_write, kIova + kLength, 1, kQpn).check,
      KeyCheck::kOutside);
}

TEST_F(WindowTable, AWindowHasNoLocalKey) {
  const uint32_t rkey = bind(KeyKind::kWindow2);
  EXPECT_EQ(look_up(rkey & ~0x100u, false, MemoryUse::local_gather).check, KeyCheck::kUnknown);
}

TEST_F(WindowTable, UnbindingTakesTheRightTagOnly) {
  const uint32_t rkey = bind(KeyKind::kWindow2);
  SharedMr* window = find_window(segment_.view(), rkey);
  ASSERT_NE(window, nullptr);
  EXPECT_FALSE(unbind_window(*window, rkey + 1));
  EXPECT_TRUE(unbind_window(*window, rkey));
  EXPECT_FALSE(unbind_window(*window, rkey));
  EXPECT_EQ(check_window(rkey), KeyCheck::kUnknown);
}

TEST_F(WindowTable, ARegionIsNoWindow) {
  EXPECT_EQ(find_window(segment_.view(), rkey_), nullptr);
  EXPECT_EQ(find_window(segment_.view(), lkey_), nullptr);
}

TEST_F(WindowTable, TheNullRegionTakesAnyAddressAndNoRemoteUse) {
  uint32_t lkey, rkey;
  ASSERT_EQ(
      table_.add(segment_, {kPd, IBV_ACCESS_LOCAL_WRITE, 0x1000, UINT64_MAX, 0x2000, KeyKind::kNullRegion},
                 &lkey, &rkey),
      0);
  EXPECT_EQ(look_up(lkey, false, MemoryUse::local_gather, 77, 8).address, 0x1000u);
  EXPECT_EQ(look_up(lkey, false, MemoryUse::local_scatter, UINT64_MAX, 8).address, 0x2000u);
  EXPECT_EQ(look_up(rkey, true, MemoryUse::remote_write, 77, 8).check, KeyCheck::kUnknown);
}

TEST_F(Table, ChangedRegionsKeepTheirKeys) {
  table_.invalidate(segment_, lkey_);
  table_.change(segment_, lkey_, {kPd + 1, 0, kIova + 0x1000, 16, kAddress});
  EXPECT_EQ(look_up(lkey_, false, MemoryUse::local_gather, kIova + 0x1000, 16, kPd + 1).check, KeyCheck::kOk);
  EXPECT_EQ(look_up(lkey_, false, MemoryUse::local_gather, kIova, 1, kPd + 1).check, KeyCheck::kOutside);
  EXPECT_EQ(look_up(lkey_, false, MemoryUse::local_gather, kIova + 0x1000, 1, kPd).check, KeyCheck::kOtherPd);
}

class Known : public Table {
 protected:
  uint32_t epoch() { return segment_.view().header().mr_epoch.load(); }
  bool covers(uint32_t key, uint64_t at = kIova, uint64_t size = 1) {
    return known_.covers(epoch(), key, at, size, &address_);
  }
  void remember(uint32_t key, MemoryUse use, uint32_t pd = kPd) {
    known_.remember(segment_.view(), key, pd, use);
  }

  KnownRegion known_;
  uint64_t address_ = 0;
};

TEST_F(Known, AnswersForWhatWasRemembered) {
  EXPECT_FALSE(covers(lkey_));
  remember(lkey_, MemoryUse::local_gather);
  ASSERT_TRUE(covers(lkey_, kIova + 100, kLength - 100));
  EXPECT_EQ(address_, kAddress + 100);
  EXPECT_FALSE(covers(lkey_, kIova + 100, kLength - 99));
  EXPECT_FALSE(covers(lkey_, kIova - 1));
  EXPECT_FALSE(covers(rkey_));
  EXPECT_FALSE(covers(lkey_ + 1));
}

TEST_F(Known, OfAnotherAdapterTakesItsRemoteKeys) {
  remember(rkey_, MemoryUse::remote_write);
  ASSERT_TRUE(covers(rkey_, kIova + 1));
  EXPECT_EQ(address_, kAddress + 1);
  EXPECT_FALSE(covers(lkey_));
}

TEST_F(Known, ForgetsAllWhenAnyKeyEnds) {
  uint32_t lkey, rkey;
  add(IBV_ACCESS_LOCAL_WRITE, &lkey, &rkey);
  remember(lkey_, MemoryUse::local_scatter);
  ASSERT_TRUE(covers(lkey_));
  table_.invalidate(segment_, lkey);
  EXPECT_FALSE(covers(lkey_));
}

TEST_F(Known, RemembersNothingThatTranslateWouldRefuse) {
  uint32_t lkey, rkey;
  add(IBV_ACCESS_REMOTE_READ, &lkey, &rkey);
  const struct {
    uint32_t key;
    MemoryUse use;
    uint32_t pd;
  } refused[] = {
      {rkey_, MemoryUse::remote_read, kPd},        // no right
      {lkey, MemoryUse::local_scatter, kPd},       // likewise
      {rkey_, MemoryUse::remote_write, kPd + 1},   // another PD
      {lkey_, MemoryUse::remote_write, kPd},       // a local key
      {rkey_, MemoryUse::local_gather, kPd},       // a remote one
      {rkey_ + 1, MemoryUse::remote_write, kPd},   // an old tag
      {0xffffff00, MemoryUse::local_gather, kPd},  // never given
  };
  for (const auto& row : refused) {
    remember(row.key, row.use, row.pd);
    EXPECT_FALSE(covers(row.key)) << std::hex << row.key;
  }
}

// Pages that may be absent and null regions go through translate() each time.
TEST_F(Known, LeavesTheUnusualAlone) {
  uint32_t lkey, rkey;
  add(IBV_ACCESS_ON_DEMAND, &lkey, &rkey);
  remember(lkey, MemoryUse::local_gather);
  EXPECT_FALSE(covers(lkey));
  ASSERT_EQ(table_.add(segment_, {kPd, 0, kIova, kLength, kAddress, KeyKind::kNullRegion}, &lkey, &rkey), 0);
  remember(lkey, MemoryUse::local_gather);
  EXPECT_FALSE(covers(lkey));
}

TEST_F(Known, TakesNoKeyForZeroOnceItHasForgotten) {
  remember(lkey_, MemoryUse::local_gather);
  remember(rkey_, MemoryUse::local_gather);
  EXPECT_FALSE(covers(0));
  EXPECT_FALSE(covers(lkey_));
}

}  // namespace
}  // namespace verbena
