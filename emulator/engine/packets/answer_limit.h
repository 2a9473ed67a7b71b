// SPDX-License-Identifier: BSD-2-Clause
//
// How many answers go to one source per second that a stranger could cause at will: NAKs, and refusals of
// management datagrams. RoCE v2 has no authentication, so a source may also be somebody who is to be flooded.
//
// For each source a virtual clock (the generic cell rate algorithm, ITU-T I.371, as a virtual scheduling
// algorithm): an answer moves it by 1 s / per_second, and none is given while it is `burst` answers ahead.
// All sources together get kAllTogether times as much. The memory is bounded: a source that has been silent
// for longest is forgotten first.
//
// Not thread-safe. Times are ns of any monotonic clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::packets {

struct AnswerRate {
  uint32_t burst = 1;  // at once
  uint32_t per_second = 1;
};

// A source: an IPv4 address (mapped, as in a GID), or the /64 of an IPv6 address.
using Source = std::array<uint8_t, 16>;

// *clock is the virtual clock of a source, ns; 0 at the beginning. False, and nothing changes: not now.
bool take_answer(const AnswerRate& rate, int64_t now, int64_t* clock) noexcept;

class AnswerLimit {
 public:
  static constexpr uint32_t kAllTogether = 4;
  static constexpr size_t kSources = 64;

  explicit AnswerLimit(const AnswerRate& rate) : rate_(rate) {}

  // May one answer go to `address` now? Counts it if so.
  bool allow(const std::array<uint8_t, 16>& address, int64_t now) noexcept;

 private:
  struct Entry {
    Source source{};
    int64_t clock = 0;
  };
  AnswerRate rate_;
  int64_t all_ = 0;
  std::array<Entry, kSources> entries_{};
};

}  // namespace verbena::packets
