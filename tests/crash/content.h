// SPDX-License-Identifier: BSD-2-Clause
//
// What messages contain: in every word, a function of the flow's salt and the message's number, so that a
// word of another message, of an earlier round or of no message is recognised. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "control_block.h"

namespace verbena::crash {

inline constexpr uint32_t kBigSize = 4096;
inline constexpr uint32_t kWriteSize = 512;
inline constexpr uint32_t kWriteSlots = 32;  // a target's place of message number n: n % kWriteSlots
inline constexpr uint32_t kWindow = 8;       // requests posted and not polled, at most
inline constexpr uint32_t kReceives = 12;

constexpr uint64_t word_of(uint64_t salt, uint64_t number, uint64_t index) {
  uint64_t z = salt + number * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

inline void fill(void* place, uint32_t size, uint64_t salt, uint64_t number) {
  auto* words = static_cast<uint64_t*>(place);
  for (uint32_t i = 0; i < size / 8; ++i) words[i] = word_of(salt, number, i);
}

inline bool holds(const void* place, uint32_t size, uint64_t salt, uint64_t number) {
  const auto* words = static_cast<const uint64_t*>(place);
  for (uint32_t i = 0; i < size / 8; ++i)
    if (words[i] != word_of(salt, number, i)) return false;
  return true;
}

// The number of the message, below `below` and sent to `place`, whose bytes lie there; UINT64_MAX: of none.
inline uint64_t find_write(const void* place, uint64_t salt, uint64_t slot, uint64_t below) {
  for (uint64_t lap = (below + kWriteSlots - 1) / kWriteSlots + 1; lap-- > 0;) {
    const uint64_t number = lap * kWriteSlots + slot;
    if (number < below && holds(place, kWriteSize, salt, number)) return number;
  }
  return UINT64_MAX;
}

// What message `number` of a flow is.
constexpr Kind kind_of(Kind flow, uint64_t number) {
  return flow == Kind::kMixed ? static_cast<Kind>(number % 6) : flow;
}
constexpr bool takes_receive(Kind kind) {
  return kind == Kind::kSmallSend || kind == Kind::kBigSend || kind == Kind::kWriteWithImmediate;
}
constexpr bool writes(Kind kind) { return kind == Kind::kWrite || kind == Kind::kWriteWithImmediate; }
constexpr uint32_t size_of(Kind kind, uint64_t number) {
  // Small ones: within the completion entry, in the receive slot, and a full receive slot.
  constexpr uint32_t kSmall[] = {8, 104, 248};
  constexpr uint32_t kSizes[] = {0, kBigSize, kWriteSize, kWriteSize, kBigSize, 8};
  return kind == Kind::kSmallSend ? kSmall[number / 6 % 3] : kSizes[static_cast<uint32_t>(kind)];
}

}  // namespace verbena::crash
