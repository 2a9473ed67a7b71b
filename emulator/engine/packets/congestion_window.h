// SPDX-License-Identifier: BSD-2-Clause
//
// How many packets a requester may have in flight, and how soon after each other they go out. The window
// grows by one packet in a round trip (in the beginning it doubles), and shrinks by a part of itself when a
// packet is lost or the peer reports congestion (CNP), at most once in a round trip. So flows that share a
// bottleneck come to equal parts of it (Chiu and Jain 1989), and switches need no pause frames (PFC).
//
// A loss while round trips are as short as ever does not come from a full queue: then the window shrinks
// less. Round trips are those of the last few packets, and the shortest of them counts: one that was long
// because a process was not scheduled says nothing about queues.
//
// On a short path, where losses are rare, the window does not shrink below kShortPath. The ends work on
// packets in groups there, and with fewer in flight one of them waits for the other. Congestion makes round
// trips long or losses frequent, and then the window shrinks further. (BBR takes
// losses up to 2 % for no congestion: draft-cardwell-iccrg-bbr-congestion-control-02, BBRLossThresh.)
//
// Packets go out in bursts of kBurst at most, and not much faster than one window in a round trip, if round
// trips are long enough for timers.
//
// A deterministic machine without a clock, not thread-safe. Times are ns of any monotonic clock.
#pragma once

#include <array>
#include <cstdint>

namespace verbena::packets {

class CongestionWindow {
 public:
  static constexpr uint32_t kLeast = 4, kBurst = 16, kShortPath = 32;  // packets

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

  // The shortest of the last four. -1: none was measured.
  int64_t recent_round_trip() const;

 private:
  int64_t gap() const;  // between two packets; 0: they are not spread
  bool has_queue() const;
  uint32_t least() const;
  void note_loss();
  void shrink(uint32_t parts_of_16, int64_t now);

  const uint32_t most_;
  uint32_t window_;
  uint32_t slow_start_until_;  // the window doubles in a round trip below this
  uint32_t credit_ = 0;        // packets acknowledged since the window grew
  bool is_limited_ = false;
  std::array<int64_t, 4> last_{};  // round trips, a ring
  uint64_t round_trips_ = 0;
  // Packets acknowledged since the last loss, and between two losses on average.
  uint32_t since_loss_ = 0, between_losses_ = UINT32_MAX;  // UINT32_MAX: there was none
  int64_t smoothed_ = -1;
  int64_t shortest_ = INT64_MAX;  // round trip
  int64_t shrunk_at_ = INT64_MIN / 2;
  int64_t next_at_ = INT64_MIN / 2;
};

}  // namespace verbena::packets
