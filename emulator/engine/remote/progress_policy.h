// SPDX-License-Identifier: BSD-2-Clause
//
// Which thread looks at the sockets, and when the service thread comes again. Pure functions and small
// counters; progress.h applies them.
//
// - A program that polls reads the sockets itself: it is quicker than a thread that has to be woken.
// - While it does, the service thread does not wait for the sockets. It looks every kPollingTick whether the
// program
//   still polls.
// - A program that sleeps, or polls only now and then, leaves the sockets to the service thread.
#pragma once

#include <cstdint>

namespace verbena {

// While a program polls, the service thread looks this often whether it still does. After kSteadyPolls such
// looks it comes half as often, and so on, kMostDoublings times: on a busy machine each look may cost the
// program its processor.
inline constexpr int64_t kPollingTick = 1'000'000;
inline constexpr int kSteadyPolls = 16, kMostDoublings = 3;
// Something lay in the sockets: the service thread looks this soon whether it still does. The same after it
// found the progress lock taken.
inline constexpr int64_t kSecondLook = 100'000;
// A frame cannot be carried out, and nothing says when it can.
inline constexpr int64_t kStalledTick = 200'000;
// While something is in flight the service thread comes every 10 ms. After a pause as long as kMissed it was
// not scheduled. Then no request times out before kCatchUp, so that the answers that have come meanwhile are
// read first.
inline constexpr int64_t kMissed = 100'000'000, kCatchUp = 10'000'000;

// The interval of the service thread after `polled_in_a_row` looks in a row before which the program had
// polled.
int64_t polling_tick(int polled_in_a_row);

// Was the service thread not scheduled between its last look and `now`?
bool was_unscheduled(int64_t last_look, int64_t now, bool is_ticking);

// One look of the service thread.
struct ServiceLook {
  int64_t now = 0;
  int64_t deadline = 0;             // when a request may time out; kEndOfTime: none
  bool program_polled = false;      // since the look before
  int polled_in_a_row = 0;          // looks in a row, this one included, for which program_polled held
  bool left_to_program = false;     // the sockets were not looked at
  bool lock_was_taken = false;      // they were not, because a thread of the program had the progress lock
  bool program_is_quicker = false;  // PollShare
  bool newly_unread = false;        // something lies in the sockets, and nothing did at the look before
  bool stalled = false;             // a frame cannot be carried out now
  bool lingered = false;            // something was left for the program's next poll
  bool receives_posted = false;     // receive WQEs that requesters are to be told of
  bool searches = false;            // a queue pair or a datagram seeks a connection
};

struct ServicePlan {
  bool arm = false;     // the sockets wake the service thread
  bool asleep = false;  // the sockets are the service thread's: a program that stops polling need not wake it
  int64_t next = 0;     // ns: when to look again at the latest
};

ServicePlan plan_service(const ServiceLook& look);

// Who takes what comes: the program's polls, or the service thread? A program that polls for its own
// completions, and waits for others by reading its memory, takes little.
class PollShare {
 public:
  // `by_polls`: how many polls of the program have received something, in all.
  bool program_is_quicker(uint32_t by_polls);
  void note_service() { ++by_service_; }

 private:
  uint32_t by_service_ = 0;
  uint32_t by_polls_before_ = 0;
};

// Polls in a row that received nothing while requests were in flight. After kLongPolling, once in
// kPollsPerLook, the program gives its processor away for a moment, perhaps to the process that has to
// answer. (Linux 6.18, each program in a scheduling group of its own: a program that polls has been seen to
// run for seconds while others were ready to run.)
class EmptyPolls {
 public:
  static constexpr uint32_t kPollsPerLook = 256;
  static constexpr int64_t kLongPolling = 5'000'000;

  void reset() { count_ = 0; }
  // Counts one. true: ask is_long() now.
  bool note() { return ++count_ % kPollsPerLook == 0; }
  bool is_long(int64_t now) {
    if (count_ == kPollsPerLook) since_ = now;
    return now - since_ > kLongPolling;
  }

 private:
  uint32_t count_ = 0;
  int64_t since_ = 0;
};

}  // namespace verbena
