// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/congestion_window.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace verbena::packets {
namespace {

// Sixteenths of the window that are left.
constexpr uint32_t kAfterLoss = 11, kAfterLossWithoutQueue = 14, kAfterNotification = 13;
// Round trips shorter than this are too short for timers.
constexpr int64_t kShortestPaced = 100'000;
// Losses are frequent if fewer packets than this arrive between two of them, on average. A window of
// kShortPath packets that does not fit the path loses one in each round trip or two.
constexpr uint32_t kRareLoss = 40;
constexpr uint32_t kMostBetween = 128;  // more are counted as so many
// A notification tells of the 50 us before it (kCnpInterval of peers).
constexpr int64_t kNotificationLength = 50'000;

}  // namespace

CongestionWindow::CongestionWindow(uint32_t first, uint32_t most)
    : most_(std::max(most, 1u)), window_(std::clamp(first, 1u, most_)), slow_start_until_(most_) {}

int64_t CongestionWindow::gap() const {
  if (smoothed_ < kShortestPaced) return 0;
  // A quarter faster than one window in a round trip, so that the window is what limits; at first twice as
  // fast.
  const int64_t gain = window_ < slow_start_until_ ? 8 : 5;
  return smoothed_ * 4 / (gain * window_);
}

uint32_t CongestionWindow::paced(int64_t now) const {
  if (!may_send(now)) return 0;
  const int64_t each = gap();
  return each == 0 ? UINT32_MAX
                   : static_cast<uint32_t>(std::min<int64_t>((now - next_at_) / each + 1, kBurst));
}

void CongestionWindow::sent(int64_t now) {
  const int64_t each = gap();
  if (each != 0) next_at_ = std::max(next_at_, now - each * (kBurst - 1)) + each;
}

void CongestionWindow::acknowledged(uint32_t packets) {
  since_loss_ = std::min(since_loss_ + packets, kMostBetween);
  if (!is_limited_) return;
  if (window_ < slow_start_until_) {
    window_ = std::min({window_ + packets, slow_start_until_, most_});
    return;
  }
  credit_ += packets;
  if (credit_ < window_) return;
  credit_ -= window_;
  window_ = std::min(window_ + 1, most_);
  is_limited_ = false;
}

// The thread that posts has a clock reading of its own, and the one that receives uses that of the beginning
// of its round: a packet sent since seems to be answered before.
void CongestionWindow::round_trip(int64_t ns) {
  if (ns <= 0) return;
  shortest_ = std::min(shortest_, ns);
  smoothed_ = smoothed_ < 0 ? ns : smoothed_ + (ns - smoothed_) / 8;
  last_[round_trips_++ % last_.size()] = ns;
}

int64_t CongestionWindow::recent_round_trip() const {
  const auto count = static_cast<ptrdiff_t>(std::min<uint64_t>(round_trips_, last_.size()));
  return count == 0 ? -1 : *std::min_element(last_.begin(), last_.begin() + count);
}

// Do packets of ours wait on the way? Then some are in flight beyond the shortest round trip.
bool CongestionWindow::has_queue() const {
  return smoothed_ < 0 || recent_round_trip() - shortest_ > shortest_ / 2;
}

uint32_t CongestionWindow::least() const {
  const bool is_short = smoothed_ >= 0 && recent_round_trip() < kShortestPaced;
  return is_short && between_losses_ >= kRareLoss ? kShortPath : kLeast;
}

void CongestionWindow::note_loss() {
  const uint32_t since = std::exchange(since_loss_, 0);
  between_losses_ = between_losses_ == UINT32_MAX ? std::max(since, kRareLoss)
                                                  : between_losses_ - between_losses_ / 8 + since / 8;
}

void CongestionWindow::shrink(uint32_t parts_of_16, int64_t now) {
  if (now - shrunk_at_ <= std::max<int64_t>(smoothed_, 0)) return;
  shrunk_at_ = now;
  window_ = std::min(std::max(window_ * parts_of_16 / 16, least()), window_);
  slow_start_until_ = window_;
  credit_ = 0;
  is_limited_ = false;
}

void CongestionWindow::lost(int64_t now) {
  note_loss();
  shrink(has_queue() ? kAfterLoss : kAfterLossWithoutQueue, now);
}

void CongestionWindow::notified(int64_t now) {
  if (now - shrunk_at_ > kNotificationLength) shrink(kAfterNotification, now);
}

void CongestionWindow::silent(int64_t now) {
  slow_start_until_ = std::max(window_ / 2, kLeast);
  window_ = std::min(window_, kLeast);
  credit_ = 0;
  shrunk_at_ = now;  // the loss that follows is the same one
}

}  // namespace verbena::packets
