// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/segment.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace verbena {
namespace {

constexpr uint64_t kNode = 0x1122334455667788;

class Segment : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(segment_.create(kNode, 3, 9), 0); }
  bool is_zero(uint64_t offset, uint64_t size) const {
    const std::byte* at = segment_.view().base() + offset;
    return std::all_of(at, at + size, [](std::byte b) { return b == std::byte{0}; });
  }
  void scribble(uint64_t offset, uint64_t size) {
    std::fill_n(segment_.view().base() + offset, size, std::byte{0x5a});
  }

  OwnSegment segment_;
};

TEST_F(Segment, SaysWhoseItIs) {
  const SegmentHeader& header = segment_.view().header();
  EXPECT_EQ(header.magic, kSegmentMagic);
  EXPECT_EQ(header.layout_version, kLayoutVersion);
  EXPECT_EQ(header.node_id, kNode);
  EXPECT_EQ(header.slot, 3u);
  EXPECT_EQ(header.slot_generation, 9u);
  EXPECT_EQ(header.pid, getpid());
  EXPECT_EQ(header.size, segment_.view().size());
}

TEST_F(Segment, AllocatesInTheHeapOnWholeCacheLines) {
  for (uint64_t size : {uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{65}, uint64_t{100000}}) {
    const uint64_t offset = segment_.allocate(size);
    EXPECT_GE(offset, kHeapOffset);
    EXPECT_EQ(offset % kCacheLine, 0u) << size;
  }
}

TEST_F(Segment, AllocatesWithoutOverlap) {
  const uint64_t first = segment_.allocate(100);
  const uint64_t second = segment_.allocate(100);
  EXPECT_GE(std::max(first, second) - std::min(first, second), 128u);
}

TEST_F(Segment, AllocatesFreshMemoryAsZero) {
  const uint64_t offset = segment_.allocate(200000);
  EXPECT_TRUE(is_zero(offset, 200000));
}

TEST_F(Segment, AllocatesUsedMemoryAsZeroAgain) {
  const uint64_t offset = segment_.allocate(5000);
  scribble(offset, 5000);
  segment_.release(offset, 5000);
  ASSERT_EQ(segment_.allocate(5000), offset);
  EXPECT_TRUE(is_zero(offset, 5000));
}

TEST_F(Segment, SplitsABlockThatIsTooLarge) {
  const uint64_t offset = segment_.allocate(640);
  segment_.release(offset, 640);
  EXPECT_EQ(segment_.allocate(128), offset);
  EXPECT_EQ(segment_.allocate(512), offset + 128);
}

TEST_F(Segment, JoinsNeighboursReleasedInAnyOrder) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
  for (const auto& order : orders) {
    uint64_t blocks[3];
    for (uint64_t& block : blocks) block = segment_.allocate(128);
    const uint64_t fence = segment_.allocate(64);
    for (int i : order) segment_.release(blocks[i], 128);
    EXPECT_EQ(segment_.allocate(384), blocks[0]);
    segment_.release(blocks[0], 384);
    segment_.release(fence, 64);
  }
}

TEST_F(Segment, RefusesWhatItCannotHold) { EXPECT_EQ(segment_.allocate(segment_.view().size()), 0u); }

TEST_F(Segment, RefusesASizeThatWraps) { EXPECT_EQ(segment_.allocate(UINT64_MAX - 10), 0u); }

TEST_F(Segment, CommitsWhatLiesInIt) {
  ASSERT_EQ(segment_.commit(kMrTableOffset, 1 << 20), 0);
  EXPECT_TRUE(is_zero(kMrTableOffset, 1 << 20));
}

TEST_F(Segment, RefusesToCommitBehindItsEnd) {
  EXPECT_EQ(segment_.commit(segment_.view().size() - 64, 128), ENOMEM);
}

TEST_F(Segment, FindsNoObjectThatDoesNotLieInIt) {
  const SegmentView& view = segment_.view();
  const uint64_t end = view.size();
  EXPECT_NE(view.at<Cqe>(end - 128), nullptr);
  EXPECT_EQ(view.at<Cqe>(end), nullptr);
  EXPECT_EQ(view.at<Cqe>(end - 128, 2), nullptr);
  EXPECT_EQ(view.at<Cqe>(4097), nullptr) << "misaligned";
  EXPECT_EQ(view.at<Cqe>(4096, UINT64_MAX), nullptr);
  EXPECT_EQ(view.at<Cqe>(UINT64_MAX - 63), nullptr);
}

TEST_F(Segment, FindsNoTableEntryBehindTheTable) {
  const SegmentView& view = segment_.view();
  EXPECT_NE(view.qp(kMaxQpsPerProcess - 1), nullptr);
  EXPECT_EQ(view.qp(kMaxQpsPerProcess), nullptr);
  EXPECT_EQ(view.cq(kMaxCqsPerProcess), nullptr);
  EXPECT_EQ(view.mr(kMaxMrsPerProcess), nullptr);
}

TEST_F(Segment, IsMappedByAPeerThatKnowsWhoseItIs) {
  PeerSegment peer;
  ASSERT_EQ(peer.map(segment_.fd(), kNode, 3, 9), 0);
  segment_.view().header().doorbell.store(77);
  EXPECT_EQ(peer.view().header().doorbell.load(), 77u);
}

TEST_F(Segment, IsRefusedByAPeerThatExpectsSomebodyElse) {
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode + 1, 3, 9), EPROTO);
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode, 4, 9), EPROTO);
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode, 3, 8), EPROTO);
}

TEST_F(Segment, IsRefusedWithoutItsMagic) {
  segment_.view().header().magic ^= 1;
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode, 3, 9), EPROTO);
}

TEST_F(Segment, IsRefusedInAnotherVersion) {
  segment_.view().header().layout_version += 1;
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode, 3, 9), EPROTO);
}

TEST_F(Segment, IsRefusedWhenItsSizeIsALie) {
  segment_.view().header().size -= 4096;
  EXPECT_EQ(PeerSegment().map(segment_.fd(), kNode, 3, 9), EPROTO);
}

TEST_F(Segment, IsRefusedWhenCutOff) {
  const int copy = memfd_create("cut", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(copy, 4096), 0);
  ASSERT_EQ(pwrite(copy, segment_.view().base(), 4096, 0), 4096);
  EXPECT_EQ(PeerSegment().map(copy, kNode, 3, 9), EPROTO);
  close(copy);
}

TEST_F(Segment, IsRefusedWhenEmpty) {
  const int empty = memfd_create("empty", MFD_CLOEXEC);
  EXPECT_EQ(PeerSegment().map(empty, kNode, 3, 9), EPROTO);
  close(empty);
}

TEST_F(Segment, IsRefusedWhenItIsNoFile) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_NE(PeerSegment().map(ends[0], kNode, 3, 9), 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace verbena
