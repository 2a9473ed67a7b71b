// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/congestion_window.h"

#include <algorithm>

namespace verbena::packets {
namespace {

// Sixteenths of the window that are left.
constexpr uint32_t kAfterLoss = 11, kAfterLossWithoutQueue = 14, kAfterNotification = 13;
// Round trips shorter than this are too short for timers.
constexpr int64_t kShortestPaced = 100'000;
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
}

void CongestionWindow::shrink(uint32_t parts_of_16, int64_t now) {
  if (now - shrunk_at_ <= std::max<int64_t>(smoothed_, 0)) return;
  shrunk_at_ = now;
  window_ = std::min(std::max(window_ * parts_of_16 / 16, kLeast), window_);
  slow_start_until_ = window_;
  credit_ = 0;
  is_limited_ = false;
}

void CongestionWindow::lost(int64_t now) {
  // Packets of ours that wait on the way: what is in flight beyond the shortest round trip.
  const bool has_queue = smoothed_ < 0 || smoothed_ - shortest_ > shortest_ / 2;
  shrink(has_queue ? kAfterLoss : kAfterLossWithoutQueue, now);
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
