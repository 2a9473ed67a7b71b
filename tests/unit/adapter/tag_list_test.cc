// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/tag_list.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace verbena {
namespace {

constexpr uint64_t kAll = UINT64_MAX;
constexpr uint32_t kWorker = 0xabcdef;

// A list in plain memory.
class TagListTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kCount = 8;
  static constexpr uint64_t kSize = 1 << 16;

  TagListTest() {
    shared_.tag_offset = 4096;
    shared_.tag_count = kCount;
  }
  TagList list() { return TagList::of(view_, shared_); }
  void add(uint32_t index, uint64_t tag, uint64_t mask = kAll) {
    list().post(index, ++number_, tag, mask, {});
    list().enable(number_, handled_);
  }
  // The index taken, or -1.
  int64_t take(uint64_t tag) {
    uint32_t index = 0;
    return list().take(tag, kWorker, &index, &enabled_) ? int64_t{index} : -1;
  }

  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_{kSize / sizeof(Page)};
  SegmentView view_{pages_[0].bytes, kSize};
  SharedSrq shared_{};
  uint64_t number_ = 0, enabled_ = 0;
  uint16_t handled_ = 0;
};

TEST_F(TagListTest, WordsKeepWhatTheyAreMadeOf) {
  const TagWord taken = TagWord::unpack(TagWord{TagState::kTaken, 0x3fffffffff, kWorker}.pack());
  EXPECT_EQ(taken.state, TagState::kTaken);
  EXPECT_EQ(taken.number, 0x3fffffffffu);
  EXPECT_EQ(taken.worker, kWorker);
  const TagWord posted = TagWord::unpack(TagWord{TagState::kPosted, TagPhase::kNumberMask, 0}.pack());
  EXPECT_EQ(posted.state, TagState::kPosted);
  EXPECT_EQ(posted.number, TagPhase::kNumberMask);
  const TagPhase phase = TagPhase::unpack(TagPhase{0xffff, 5}.pack());
  EXPECT_EQ(phase.unexpected, 0xffff);
  EXPECT_EQ(phase.enabled, 5u);
}

TEST_F(TagListTest, AnOffsetOutsideTheSegmentIsNoList) {
  for (const uint64_t offset : {uint64_t{0}, kSize, kSize - 64, uint64_t{4100}, UINT64_MAX - 63}) {
    shared_.tag_offset = offset;
    EXPECT_EQ(list().tags, nullptr) << offset;
  }
  shared_.tag_offset = 4096;
  for (const uint32_t count : {0u, kMostTags + 1, UINT32_MAX}) {
    shared_.tag_count = count;
    EXPECT_EQ(list().tags, nullptr) << count;
  }
}

TEST_F(TagListTest, TheTagThatWasAddedFirstIsTaken) {
  add(5, 1);
  add(2, 1);
  add(7, 2);
  EXPECT_EQ(take(1), 5);
  EXPECT_EQ(take(1), 2);
  EXPECT_EQ(take(1), -1);
  EXPECT_EQ(take(2), 7);
}

TEST_F(TagListTest, TheMaskSaysWhatIsCompared) {
  add(0, 0x1200, 0xff00);
  add(1, 0, 0);
  EXPECT_EQ(take(0x1234), 0);
  EXPECT_EQ(take(0x5678), 1);
}

// "TMH.tag & entry.mask == entry.tag" (ibv_post_srq_ops(3)): the tag of the entry is not masked.
TEST_F(TagListTest, ATagBesideItsMaskMatchesNothing) {
  add(0, 0x1234, 0xff00);
  EXPECT_EQ(take(0x1234), -1);
}

TEST_F(TagListTest, ATakenTagNamesItsTaker) {
  add(3, 9);
  ASSERT_EQ(take(9), 3);
  const TagWord word = TagWord::unpack(list().tags[3].word.load());
  EXPECT_EQ(word.state, TagState::kTaken);
  EXPECT_EQ(word.worker, kWorker);
  EXPECT_FALSE(list().remove(3, 1));
}

TEST_F(TagListTest, ARemovedTagMatchesNothing) {
  add(3, 9);
  EXPECT_FALSE(list().remove(3, 2));
  EXPECT_TRUE(list().remove(3, 1));
  EXPECT_EQ(take(9), -1);
}

// A tag that is added before the program has handled the message that came first is not used until it has.
TEST_F(TagListTest, TagsWaitForTheUnexpectedMessage) {
  add(0, 1);
  ASSERT_EQ(take(7), -1);
  list().count_unexpected(enabled_);
  add(1, 7);
  EXPECT_EQ(take(7), -1);
  EXPECT_EQ(take(1), 0) << "older tags are used";
  EXPECT_FALSE(list().enable(number_, 0));
  EXPECT_TRUE(list().enable(number_, 1));
  EXPECT_EQ(take(7), 1);
}

// It was added while the message was on its way.
TEST_F(TagListTest, ATagAddedMeanwhileIsNotUsedAnyMore) {
  ASSERT_EQ(take(7), -1);
  add(0, 7);
  list().count_unexpected(enabled_);
  EXPECT_EQ(take(7), -1);
  EXPECT_EQ(list().phase().unexpected, 1);
}

TEST_F(TagListTest, TheCountGoesRound) {
  for (uint32_t i = 0; i < 0x10003; ++i) list().count_unexpected(0);
  EXPECT_EQ(list().phase().unexpected, 3);
}

TEST_F(TagListTest, EveryTagIsTakenByOneOfManyThreads) {
  constexpr uint32_t kRounds = 300;
  std::array<std::atomic<uint32_t>, kCount> taken{};
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) add(i, 1);
    std::vector<std::thread> takers;
    for (uint32_t t = 0; t < 2; ++t)
      takers.emplace_back([&] {
        uint64_t enabled;
        for (uint32_t index; list().take(1, kWorker, &index, &enabled);) taken[index].fetch_add(1);
      });
    for (std::thread& taker : takers) taker.join();
  }
  for (const auto& count : taken) EXPECT_EQ(count.load(), kRounds);
}

// Whatever stands in the words: the search ends, and gives an index of the list.
TEST_F(TagListTest, DamagedWordsAreBounded) {
  for (uint64_t pattern : {uint64_t{0}, UINT64_MAX, uint64_t{0x5555555555555555}, uint64_t{1}, uint64_t{5}}) {
    for (uint32_t i = 0; i < kCount; ++i) {
      list().tags[i].word.store(pattern);
      list().tags[i].tag = list().tags[i].mask = pattern;
    }
    shared_.tag_phase.store(UINT64_MAX);
    for (uint32_t i = 0; i <= kCount; ++i) {
      const int64_t index = take(pattern);
      EXPECT_LT(index, int64_t{kCount});
    }
  }
}

}  // namespace
}  // namespace verbena
