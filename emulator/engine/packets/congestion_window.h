// SPDX-License-Identifier: BSD-2-Clause
//
// How many packets a requester may have in flight, and how soon after each other they go out. The window
// grows by one packet in a round trip (in the beginning it doubles), and shrinks by a part of itself when a
// packet is lost or the peer reports congestion (CNP), at most once in a round trip. So flows that share a
// bottleneck come to equal parts of it (Chiu and Jain 1989), and switches need no pause frames (PFC).
//
// A loss while round trips are as short as ever does not come from a full queue: then the window shrinks
// less.
//
// Packets go out in bursts of kBurst at most, and not much faster than one window in a round trip, if round
// trips are long enough for timers.
//
// A deterministic machine without a clock, not thread-safe. Times are ns of any monotonic clock.
#pragma once

#include <cstdint>

namespace verbena::packets {

class CongestionWindow {
 public:
  static constexpr uint32_t kLeast = 4, kBurst = 16;  // packets

  // `most`: packets, never exceeded. `first`: the window of the beginning; at most `most`.
  CongestionWindow(uint32_t first, uint32_t most);

  uint32_t packets() const { return window_; }

  // May a packet be sent now? Otherwise: at send_at().
  bool may_send(int64_t now) const { return next_at_ <= now; }
  int64_t send_at() const { return next_at_; }
  // How many packets may be sent now, one after another, if the window has room for them.
  uint32_t paced(int64_t now) const;
  void sent(int64_t now);

  // The window has kept a packet from being sent. A window that is not used up does not grow.
  void limited() { is_limited_ = true; }
  void acknowledged(uint32_t packets);
  void round_trip(int64_t ns);  // of a packet that was sent once; of no time, or less: not counted
  void lost(int64_t now);
  void notified(int64_t now);  // by a CNP
  void silent(int64_t now);    // nothing came for a timeout of the connection

  // -1: none was measured.
  int64_t smoothed_round_trip() const { return smoothed_; }

 private:
  int64_t gap() const;  // between two packets; 0: they are not spread
  void shrink(uint32_t parts_of_16, int64_t now);

  const uint32_t most_;
  uint32_t window_;
  uint32_t slow_start_until_;  // the window doubles in a round trip below this
  uint32_t credit_ = 0;        // packets acknowledged since the window grew
  bool is_limited_ = false;
  int64_t smoothed_ = -1;
  int64_t shortest_ = INT64_MAX;  // round trip
  int64_t shrunk_at_ = INT64_MIN / 2;
  int64_t next_at_ = INT64_MIN / 2;
};

}  // namespace verbena::packets
