// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/receive_ring.h"
#include "adapter/segment.h"

#include <gtest/gtest.h>

#include <functional>

namespace verbena {
namespace {

constexpr uint64_t kRingSize = 1 << 20;

class Ring : public ::testing::Test {
 protected:
  Ring() : view_(memory_.data(), kRingSize) {
    qp_.rq_order = 3;
    qp_.rq_max_sge = 2;
    qp_.rq_stride = sizeof(ReceiveWqe) + 2 * sizeof(WqeSge);
    qp_.rq_ready_offset = 4096;
    qp_.rq_wqe_offset = 8192;
    qp_.rq_bounce_offset = 16384;
  }
  bool stands() const { return ReceiveRing::of(view_, qp_).ready != nullptr; }

  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  struct Memory {
    std::vector<Page> pages{kRingSize / sizeof(Page)};
    std::byte* data() { return pages[0].bytes; }
  };
  Memory memory_;
  SegmentView view_;
  SharedQp qp_{};
};

TEST_F(Ring, OfSoundOffsetsStands) { EXPECT_TRUE(stands()); }

TEST_F(Ring, FreshMemoryHasNoReceive) {
  ReadyWord word;
  for (uint64_t number = 0; number < 8; ++number)
    EXPECT_FALSE(ReceiveRing::of(view_, qp_).peek(number, &word)) << number;
}

TEST_F(Ring, ShowsWhatWasPublished) {
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  ring.publish(9, 0x1234, 5000);
  ReadyWord word;
  ASSERT_TRUE(ring.peek(9, &word));
  EXPECT_EQ(word.epoch, 0x1234u);
  EXPECT_EQ(word.length, 5000u);
}

TEST_F(Ring, DoesNotTakeTheLastLapForThisOne) {
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  ring.publish(1, 0, 1);
  ReadyWord word;
  EXPECT_FALSE(ring.peek(9, &word));
}

TEST_F(Ring, CountsLapsBeyondAByte) {
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  ReadyWord word;
  for (uint64_t number = 0; number < 8 * 600; ++number) {
    ASSERT_FALSE(number >= 8 && ring.peek(number, &word)) << number;
    ring.publish(number, 0, 1);
    ASSERT_TRUE(ring.peek(number, &word)) << number;
  }
}

TEST_F(Ring, ReadsTheWordsOfALineOnce) {
  qp_.rq_order = 4;
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  for (uint64_t number = 0; number < 16; ++number) ring.publish(number, 0, static_cast<uint32_t>(number));
  KnownReady known;
  ReadyWord word;
  ASSERT_TRUE(ring.peek(2, &word, &known));
  // The owner posts again what was taken: the others are known already.
  ring.publish(16 + 2, 0, 100);
  ring.publish(16 + 7, 0, 100);
  ASSERT_TRUE(ring.peek(7, &word, &known));
  EXPECT_EQ(word.length, 7u);
  ASSERT_TRUE(ring.peek(8, &word, &known));
  EXPECT_EQ(word.length, 8u);
}

TEST_F(Ring, SeesWhatIsPublishedAfterTheLineWasRead) {
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  KnownReady known;
  ReadyWord word;
  for (uint64_t number = 0; number < 8 * 600; ++number) {
    ASSERT_FALSE(ring.peek(number, &word, &known)) << number;
    ring.publish(number, 0, static_cast<uint32_t>(number));
    ASSERT_TRUE(ring.peek(number, &word, &known)) << number;
    ASSERT_EQ(word.length, number);
  }
}

TEST_F(Ring, ShorterThanALineIsReadAsAnyOther) {
  for (uint32_t order = 0; order < 3; ++order) {
    qp_.rq_order = order;
    memory_ = {};
    view_ = SegmentView(memory_.data(), kRingSize);
    const ReceiveRing ring = ReceiveRing::of(view_, qp_);
    const uint64_t slots = uint64_t{1} << order;
    KnownReady known;
    ReadyWord word;
    for (uint64_t number = 0; number < 100; ++number) {
      ring.publish(number, 0, static_cast<uint32_t>(number));
      ASSERT_TRUE(ring.peek(number, &word, &known)) << number;
      ASSERT_EQ(word.length, number);
      ASSERT_FALSE(ring.peek(number + slots, &word, &known)) << "a WQE of the lap before";
      ASSERT_FALSE(ring.peek(number + 1, &word, &known));
    }
  }
}

TEST_F(Ring, GivesEachSlotItsOwnPlace) {
  const ReceiveRing ring = ReceiveRing::of(view_, qp_);
  EXPECT_EQ(&ring.wqe(3), &ring.wqe(11));
  EXPECT_EQ(reinterpret_cast<std::byte*>(&ring.wqe(4)) - reinterpret_cast<std::byte*>(&ring.wqe(3)),
            qp_.rq_stride);
  EXPECT_EQ(ring.bounce(4) - ring.bounce(3), kBounceSize);
}

struct Hostile {
  const char* name;
  void (*damage)(SharedQp&);
};

class HostileRing : public Ring, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileRing, IsRefused) {
  GetParam().damage(qp_);
  EXPECT_FALSE(stands());
}

constexpr Hostile kHostile[] = {
    {"OrderAboveAll", [](SharedQp& qp) { qp.rq_order = 25; }},
    {"OrderThatShiftsOut", [](SharedQp& qp) { qp.rq_order = 64; }},
    {"OrderThatDoesNotFit", [](SharedQp& qp) { qp.rq_order = 17; }},
    {"ReadyBehindTheEnd", [](SharedQp& qp) { qp.rq_ready_offset = kRingSize; }},
    {"ReadyOverTheEnd", [](SharedQp& qp) { qp.rq_ready_offset = kRingSize - 56; }},
    {"ReadyMisaligned", [](SharedQp& qp) { qp.rq_ready_offset = 4097; }},
    {"ReadyThatWraps", [](SharedQp& qp) { qp.rq_ready_offset = UINT64_MAX - 7; }},
    {"NoReceiveQueue", [](SharedQp& qp) { qp.rq_ready_offset = 0; }},
    {"WqesOverTheEnd", [](SharedQp& qp) { qp.rq_wqe_offset = kRingSize - 8 * qp.rq_stride + 16; }},
    {"WqesMisaligned", [](SharedQp& qp) { qp.rq_wqe_offset = 8193; }},
    {"BounceBuffersOverTheEnd", [](SharedQp& qp) { qp.rq_bounce_offset = kRingSize - 8 * kBounceSize + 1; }},
    {"StrideTooSmallForTheList", [](SharedQp& qp) { qp.rq_stride -= 1; }},
    {"StrideThatMisaligns", [](SharedQp& qp) { qp.rq_stride += 1; }},
    {"StrideThatDoesNotFit", [](SharedQp& qp) { qp.rq_stride = UINT32_MAX & ~15u; }},
    {"ListThatDoesNotFitTheStride", [](SharedQp& qp) { qp.rq_max_sge = 3; }},
    {"ListThatWraps", [](SharedQp& qp) { qp.rq_max_sge = UINT32_MAX; }},
};
INSTANTIATE_TEST_SUITE_P(Each, HostileRing, ::testing::ValuesIn(kHostile),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(Ring, EndingExactlyAtTheEndStands) {
  qp_.rq_wqe_offset = kRingSize - 8 * qp_.rq_stride;
  EXPECT_TRUE(stands());
}

}  // namespace
}  // namespace verbena
