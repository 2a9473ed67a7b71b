// SPDX-License-Identifier: BSD-2-Clause
//
// A process writes into the ring that the instruments of now can read.
#include "engine/service/recording.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>

#include "fabric/instruments.h"
#include "record/ring_reader.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class RecordingTest : public ::testing::Test {
 protected:
  ~RecordingTest() override { recording_.end(); }

  uint32_t add(const RecordWish& wish) {
    uint32_t index = 0;
    EXPECT_EQ(add_instrument(node_.directory(), node_.path(), wish, &index), 0);
    return index;
  }
  void remove(uint32_t index) { remove_instrument(node_.directory(), node_.path(), index); }
  void follow() { recording_.follow(on_node_.membership); }
  std::string path() const {
    return record_path(node_.path(), on_node_.membership.slot(), on_node_.membership.generation());
  }
  uint64_t size() const {
    std::error_code none;
    const auto whole = std::filesystem::file_size(path(), none);
    return none ? 0 : whole - record::kRingHeaderSize;
  }
  bool is_written() const {
    record::RingReader reader;
    return reader.open(path()) == 0 && reader.is_written();
  }

  TemporaryNode node_;
  ScopedMembership on_node_{node_.path()};
  Recording recording_;
};

TEST_F(RecordingTest, TakesALargerRingWhenOneIsWanted) {
  const uint32_t small = add({kRecordTimeline, 0, 1});
  follow();
  EXPECT_EQ(size(), 1 * kMiB);
  const uint32_t large = add({kRecordPackets, RecordWish::kWhole, 4});
  follow();
  EXPECT_EQ(size(), 4 * kMiB);
  EXPECT_TRUE(is_written());
  remove(large);
  follow();
  EXPECT_EQ(size(), 4 * kMiB) << "a smaller one is no reason";
  EXPECT_TRUE(is_written());
  remove(small);
  follow();
  EXPECT_FALSE(is_written());
}

// The file system has no space for the larger ring: both instruments go on with the one that there is.
TEST_F(RecordingTest, KeepsItsRingWhenThereIsNoSpaceForALargerOne) {
  add({kRecordTimeline, 0, 1});
  follow();
  ASSERT_EQ(size(), 1 * kMiB);
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 2 * kMiB;
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const uint32_t large = add({kRecordPackets, RecordWish::kWhole, 4});
  follow();
  follow();
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(size(), 1 * kMiB);
  EXPECT_TRUE(is_written());
  EXPECT_FALSE(std::filesystem::exists(path() + record::kFreshRing));
  remove(large);
  follow();
  EXPECT_TRUE(is_written());
  add({kRecordPackets, RecordWish::kWhole, 4});  // another instrument: it is tried again
  follow();
  EXPECT_EQ(size(), 4 * kMiB);
  EXPECT_TRUE(is_written());
}

// The last instrument removes the rings as it ends; the next one wants the same, and comes at once.
TEST_F(RecordingTest, MakesTheRingAgainThatAnInstrumentHasRemoved) {
  const RecordWish wish{kRecordPackets, RecordWish::kWhole, 1};
  const uint32_t first = add(wish);
  follow();
  ASSERT_TRUE(is_written());
  remove(first);
  std::filesystem::remove(path());
  add({});  // another entry than before: the first one's instrument and this are of one process here
  add(wish);
  follow();
  EXPECT_TRUE(is_written());
}

}  // namespace
}  // namespace verbena
