// SPDX-License-Identifier: BSD-2-Clause
//
// A thread that receives one message after the other and sends none in between is at the end of a stream.
// When it is faster than the sender, it would look at the next completion entry all the time, and so take the
// cache line away from the sender just when he writes it: both sides pay for every message. So at the end of
// a stream the next look waits for a moment, in which messages gather: the longer, the fewer of them are read
// just as they are written. A thread that answers what it gets never waits, and a message that comes after a
// pause is seen at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena {

// So many receptions without a request in between make a stream.
inline constexpr uint32_t kStream = 64;
// The moment, in ns, for a CQ of `entries`. At full rate, some 50 ns a message, a sixth of them fill
// meanwhile; a shorter pause than a microsecond saves a shallow queue nothing. At most what a requester waits
// that found no receive WQE: a fraction of what waking anybody takes.
inline constexpr uint64_t kShortestStreamPause = 1000, kLongestStreamPause = 4000;
constexpr int64_t stream_pause(uint64_t entries) {
  return static_cast<int64_t>(std::clamp(entries * 8, kShortestStreamPause, kLongestStreamPause));
}

// Receptions of the calling thread since it last posted a request.
__attribute__((tls_model("initial-exec"))) inline constinit thread_local uint32_t received_in_a_row = 0;

}  // namespace verbena
