// SPDX-License-Identifier: BSD-2-Clause
//
// When a thread whose polls find nothing gives its processor away. Pure: polls and times in, a decision out.
//
// A thread that polls may wait for a thread that waits for its processor. Nothing says so beforehand, but
// sched_yield(2) tells: it returns after some 0.2 us if no other thread wants the processor, and after 1 us
// or more if one had it meanwhile (Linux 6.18). So a thread yields from time to time, and learns from it.
//
// - Alone: each yield that finds nobody doubles the wait before the next one, up to kLongestWait. A message
//   that comes meanwhile is late by 0.1 us in one of 300 cases. A thread whose messages come sooner never
//   yields.
// - Among others: it waits for a fraction of what the last yield took. Among threads that yield, too, that is
//   kShortestWait. A thread that computes keeps the processor for milliseconds; then it pays to wait
//   longer, for the answer is usually quicker.
// - Polls between which other things are done (kSlowPoll) are no spinning, and do not yield.
//
// One object for each thread, for all its CQs, of whatever devices. A completion of any of them ends the
// wait.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena {

class PollPatience {
 public:
  // The clock is read once in so many empty polls, ...
  static constexpr uint32_t kPollsPerLook = 64;
  // ... and if they took longer than this each, ns, the wait begins again.
  static constexpr int64_t kSlowPoll = 4'000;
  // Between two yields, ns. The shortest is a little longer than two processes take to exchange a message.
  static constexpr int64_t kShortestWait = 1'000, kFirstWait = 4'000, kLongestWait = 64'000;
  // A yield that took as long, ns, gave the processor to another thread.
  static constexpr int64_t kGivenAway = 700;
  // Part of such a time that the thread waits next. Less than 1 / (threads per processor), or threads that
  // wait for each other would wait longer and longer.
  static constexpr int64_t kFraction = 64;

  // A completion was found.
  void found() { polls_ = 0; }
  // Nothing was found. True: call look().
  bool is_due() { return ++polls_ % kPollsPerLook == 0; }
  // At `now`, ns. True: yield, then call yielded().
  bool look(int64_t now) {
    const bool is_first = polls_ == kPollsPerLook;
    const bool is_slow = now - looked_at_ > kSlowPoll * kPollsPerLook;
    looked_at_ = now;
    if (is_first || is_slow) began_at_ = now;
    return now - began_at_ >= wait_;
  }
  // The yield was over at `now`, ns.
  void yielded(int64_t now) {
    const int64_t took = now - looked_at_;
    wait_ = took < kGivenAway ? std::min(2 * wait_, kLongestWait)
                              : std::clamp(took / kFraction, kShortestWait, kLongestWait);
    looked_at_ = began_at_ = now;
  }
  int64_t wait() const { return wait_; }

 private:
  uint32_t polls_ = 0;  // in a row that found nothing
  int64_t began_at_ = 0, looked_at_ = 0;
  int64_t wait_ = kFirstWait;
};

}  // namespace verbena
