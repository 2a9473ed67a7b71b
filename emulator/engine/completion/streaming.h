// SPDX-License-Identifier: BSD-2-Clause
//
// The pause of a thread at the receiving end of a stream: it receives message after message and sends none in
// between.
//
// If such a thread is faster than the sender, it polls the next completion entry all the time, and takes the
// cache line from the sender just when the sender writes it. Both sides pay for every message. So the
// receiver pauses before it looks again, and messages gather meanwhile. The longer the pause, the fewer
// entries are read just as they are written. A thread that replies to what it receives never pauses. A
// message that comes after the pause is seen at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena {

// A stream: this many receptions without a request in between.
inline constexpr uint32_t kStream = 64;
// No stream: a thread that has received fewer messages since its last request replies to what it receives.
inline constexpr uint32_t kReplies = 2;
// The pause for a CQ of `entries`, ns. At full rate, some 50 ns per message, a sixth of the entries fill
// meanwhile. Below 1 us a pause saves nothing on a shallow queue. No pause is longer than the wait of a
// requester that found no receive WQE, a fraction of the time to wake a thread.
inline constexpr uint64_t kShortestStreamPause = 1000, kLongestStreamPause = 4000;
constexpr int64_t stream_pause(uint64_t entries) {
  return static_cast<int64_t>(std::clamp(entries * 8, kShortestStreamPause, kLongestStreamPause));
}

// Receptions of the calling thread since it last posted a request.
__attribute__((tls_model("initial-exec"))) inline constinit thread_local uint32_t received_in_a_row = 0;

}  // namespace verbena
