// SPDX-License-Identifier: BSD-2-Clause
//
// Bytes that depend on a seed and their position, so that moved, lost and repeated bytes are detected.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace conformance {

// Eight bytes of the pattern, those from position 8 * word on (Steele, Lea, Flood: SplitMix).
inline uint64_t pattern_word(uint64_t seed, uint64_t word) {
  uint64_t z = (word + seed) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

inline uint8_t pattern_byte(uint64_t seed, uint64_t position) {
  return static_cast<uint8_t>(pattern_word(seed, position / 8) >> position % 8 * 8);
}

inline void fill_pattern(uint8_t* to, size_t length, uint64_t seed, uint64_t first = 0) {
  for (size_t i = 0; i < length; ++i) to[i] = pattern_byte(seed, first + i);
}

// Where the bytes first differ from the pattern; `length` where they do not.
inline size_t differs_at(const uint8_t* bytes, size_t length, uint64_t seed, uint64_t first = 0) {
  for (size_t i = 0; i < length; ++i)
    if (bytes[i] != pattern_byte(seed, first + i)) return i;
  return length;
}

}  // namespace conformance
