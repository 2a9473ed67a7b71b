// SPDX-License-Identifier: BSD-2-Clause
//
// The window by itself, and flows that share a bottleneck with a short queue, as two laptops and a gigabit
// switch without pause frames.
#include "engine/packets/congestion_window.h"

#include <tuple>

#include "bottleneck.h"

namespace verbena::packets {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// ---- the window ----

TEST(RoceCongestionWindow, DoublesUntilALossAndThenGrowsByOneInARoundTrip) {
  CongestionWindow window(16, 128);
  window.acknowledged(16);
  EXPECT_EQ(window.packets(), 16u) << "it was not used up";
  window.limited();
  window.acknowledged(16);
  EXPECT_EQ(window.packets(), 32u);
  window.lost(0);
  EXPECT_EQ(window.packets(), 22u);
  window.limited();
  window.acknowledged(21);
  EXPECT_EQ(window.packets(), 22u);
  window.acknowledged(1);
  EXPECT_EQ(window.packets(), 23u);
}

TEST(RoceCongestionWindow, ShrinksOnceInARoundTrip) {
  CongestionWindow window(64, 64);
  window.round_trip(100'000);
  window.lost(kMillisecond);
  const uint32_t once = window.packets();
  EXPECT_LT(once, 64u);
  window.lost(kMillisecond + 99'000);
  window.notified(kMillisecond + 99'000);
  EXPECT_EQ(window.packets(), once);
  window.notified(kMillisecond + 101'000);
  EXPECT_LT(window.packets(), once);
}

// With round trips as short as ever, packets are not lost to a full queue.
TEST(RoceCongestionWindow, ShrinksLessWhereNothingWaits) {
  CongestionWindow short_ones(64, 64), long_ones(64, 64);
  for (CongestionWindow* each : {&short_ones, &long_ones}) each->round_trip(100'000);
  for (int i = 0; i < 50; ++i) long_ones.round_trip(300'000);
  short_ones.lost(kMillisecond);
  long_ones.lost(kMillisecond);
  EXPECT_EQ(short_ones.packets(), 56u);
  EXPECT_EQ(long_ones.packets(), 44u);
}

// A process that was not scheduled.
TEST(RoceCongestionWindow, TakesOneLongRoundTripForNoQueue) {
  CongestionWindow window(64, 64);
  for (int i = 0; i < 8; ++i) window.round_trip(100'000);
  window.round_trip(5 * kMillisecond);
  window.lost(kMillisecond);
  EXPECT_EQ(window.packets(), 56u);
}

// Packets arrive between losses, as many each time, and the window does not grow.
void lose(CongestionWindow& window, uint32_t between) {
  for (int i = 1; i <= 20; ++i) {
    window.acknowledged(between);
    window.lost(i * kMillisecond);
  }
}

TEST(RoceCongestionWindow, KeepsPacketsForBothEndsOfAShortPathWhereLossesAreRare) {
  constexpr int64_t kShort = 20'000, kLong = 200'000;
  for (const auto& [round_trip, between, expected] : {std::tuple{kShort, 100u, CongestionWindow::kShortPath},
                                                      std::tuple{kShort, 20u, CongestionWindow::kLeast},
                                                      std::tuple{kLong, 100u, CongestionWindow::kLeast}}) {
    CongestionWindow window(64, 64);
    for (int i = 0; i < 8; ++i) window.round_trip(round_trip);
    lose(window, between);
    EXPECT_EQ(window.packets(), expected) << round_trip << " ns, " << between << " packets between losses";
  }
}

TEST(RoceCongestionWindow, KeepsThemNoLongerWhenPacketsWait) {
  CongestionWindow window(64, 64);
  window.round_trip(20'000);
  for (int i = 0; i < 8; ++i) window.round_trip(110'000);
  lose(window, 100);
  EXPECT_EQ(window.packets(), CongestionWindow::kLeast);
}

TEST(RoceCongestionWindow, StaysWithinItsBounds) {
  CongestionWindow window(16, 32);
  for (int i = 0; i < 1000; ++i) {
    window.limited();
    window.acknowledged(100);
  }
  EXPECT_EQ(window.packets(), 32u);
  for (int i = 1; i < 100; ++i) window.lost(i * kMillisecond);
  EXPECT_EQ(window.packets(), CongestionWindow::kLeast);
  CongestionWindow small(16, 2);
  EXPECT_EQ(small.packets(), 2u);
  small.silent(0);
  small.lost(kMillisecond);
  EXPECT_EQ(small.packets(), 2u);
}

// A timeout and the loss that it stands for are one.
TEST(RoceCongestionWindow, DoublesAgainAfterATimeout) {
  CongestionWindow window(64, 64);
  window.round_trip(100'000);
  window.silent(kMillisecond);
  window.lost(kMillisecond);
  EXPECT_EQ(window.packets(), CongestionWindow::kLeast);
  for (uint32_t expected = 8; expected <= 32; expected *= 2) {
    window.limited();
    window.acknowledged(window.packets());
    EXPECT_EQ(window.packets(), expected);
  }
  window.limited();
  window.acknowledged(32);
  EXPECT_EQ(window.packets(), 33u) << "above half of the window that was too large it grows slowly";
}

// The clock readings of two threads.
TEST(RoceCongestionWindow, CountsNoRoundTripThatEndsBeforeItBegins) {
  CongestionWindow window(64, 64);
  window.round_trip(-1);
  window.round_trip(0);
  EXPECT_EQ(window.recent_round_trip(), -1);
  window.round_trip(100'000);
  window.round_trip(-50'000);
  EXPECT_EQ(window.recent_round_trip(), 100'000);
  for (int i = 0; i < 50; ++i) window.round_trip(300'000);
  window.lost(kMillisecond);
  EXPECT_EQ(window.packets(), 44u) << "the shortest round trip is 100 us: packets waited";
}

TEST(RoceCongestionWindow, SaysHowManyPacketsMayGoTogether) {
  CongestionWindow window(32, 32);
  EXPECT_EQ(window.paced(0), UINT32_MAX) << "no round trip is known";
  window.round_trip(kMillisecond);
  EXPECT_EQ(window.paced(0), CongestionWindow::kBurst);
  for (int64_t now = kMillisecond; now < 5 * kMillisecond; now += 77'000) {
    const uint32_t allowed = window.paced(now);
    uint32_t sent = 0;
    for (; window.may_send(now); ++sent) window.sent(now);
    EXPECT_EQ(sent, allowed) << now;
  }
}

TEST(RoceCongestionWindow, SpreadsPacketsOverALongRoundTripInBursts) {
  CongestionWindow window(32, 32);
  window.round_trip(kMillisecond);
  window.lost(0);
  ASSERT_EQ(window.packets(), 28u);
  int64_t now = kMillisecond;
  uint32_t burst = 0;
  for (; window.may_send(now) && burst < 100; ++burst) window.sent(now);
  EXPECT_EQ(burst, CongestionWindow::kBurst);
  uint32_t sent = 0;
  for (const int64_t end = now + 10 * kMillisecond; now < end; now = window.send_at())
    for (; window.may_send(now); ++sent) window.sent(now);
  EXPECT_NEAR(sent, 10 * 28 * 1.25, 20);
}

TEST(RoceCongestionWindow, DoesNotWaitOnAShortRoundTrip) {
  CongestionWindow window(32, 32);
  window.round_trip(20'000);
  for (int i = 0; i < 100; ++i) window.sent(0);
  EXPECT_TRUE(window.may_send(0));
}

// ---- flows ----

struct Outcome {
  std::vector<double> shares;  // of the link, in payload
  double total = 0, dropped = 0;
};

// The first half second is not counted.
Outcome outcome_of(const BottleneckOptions& options) {
  Bottleneck link(options);
  link.run_until(500 * kMillisecond);
  std::vector<uint64_t> before;
  for (const auto& flow : link.flows) before.push_back(flow->bytes);
  const int64_t since = link.now;
  const uint64_t sent = link.sent, dropped = link.dropped;
  link.run_until(since + 1000 * kMillisecond);
  Outcome outcome;
  for (size_t i = 0; i < link.flows.size(); ++i) {
    outcome.shares.push_back(link.share(*link.flows[i], before[i], since));
    outcome.total += outcome.shares.back();
  }
  outcome.dropped = static_cast<double>(link.dropped - dropped) / static_cast<double>(link.sent - sent);
  return outcome;
}

TEST(RoceCongestion, OneFlowFillsAGigabitLinkWithAShortQueue) {
  for (const uint32_t mtu : {1024u, 4096u}) {
    const Outcome outcome = outcome_of({.queue = 64 << 10, .mtu = mtu});
    EXPECT_GE(outcome.total, 0.8) << mtu;
    EXPECT_LE(outcome.dropped, 0.06) << mtu;
  }
}

TEST(RoceCongestion, OneFlowFillsALinkWithAQueueOf15Packets) {
  const Outcome outcome = outcome_of({.queue = 16 << 10});
  EXPECT_GE(outcome.total, 0.8);
  EXPECT_LE(outcome.dropped, 0.03);
}

TEST(RoceCongestion, TwoFlowsShareALinkEqually) {
  for (const uint32_t mark_above : {UINT32_MAX, 20u << 10}) {
    const Outcome outcome = outcome_of({.queue = 64 << 10, .mark_above = mark_above, .flows = 2});
    EXPECT_GE(outcome.total, 0.8);
    for (const double share : outcome.shares) EXPECT_GE(share, 0.4 * outcome.total);
    EXPECT_LE(outcome.dropped, 0.03);
  }
}

TEST(RoceCongestion, WhereTheSwitchMarksPacketsNoneAreDropped) {
  for (const int flows : {1, 2, 8}) {
    const Outcome outcome = outcome_of({.queue = 64 << 10, .mark_above = 20 << 10, .flows = flows});
    EXPECT_GE(outcome.total, 0.9) << flows;
    EXPECT_LE(outcome.dropped, 0.001) << flows;
  }
}

// Of packets and of acknowledgements, whatever their place: no timeout of the connection (67 ms) passes.
TEST(RoceCongestion, OnePacketIn100LostLeavesMostOfTheRate) {
  const BottleneckOptions options{.bytes_per_ns = 1, .queue = 1 << 20, .round_trip = 20'000, .mtu = 4096};
  BottleneckOptions lossy = options;
  lossy.loss = 0.01;
  EXPECT_GE(outcome_of(lossy).total, 0.6 * outcome_of(options).total);
}

// So fast that round trips stay short: what is kept for both ends must not fill it again and again.
TEST(RoceCongestion, FlowsShareAFastLinkWithAShortQueue) {
  for (const int flows : {2, 4}) {
    const Outcome outcome = outcome_of(
        {.bytes_per_ns = 1.25, .queue = 128 << 10, .round_trip = 20'000, .mtu = 4096, .flows = flows});
    EXPECT_GE(outcome.total, 0.75) << flows;
    EXPECT_LE(outcome.dropped, 0.06) << flows;
    for (const double share : outcome.shares) EXPECT_GE(share * flows, 0.7 * outcome.total) << flows;
  }
}

}  // namespace
}  // namespace verbena::packets
