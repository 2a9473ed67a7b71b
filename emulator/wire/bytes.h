// SPDX-License-Identifier: BSD-2-Clause
//
// Little-endian numbers in messages, aligned or not.
#pragma once

#include <cstdint>

namespace verbena::wire {

inline void put32(uint8_t* to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}
inline void put64(uint8_t* to, uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}
inline uint32_t get32(const uint8_t* from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= uint32_t{from[i]} << (8 * i);
  return value;
}
inline uint64_t get64(const uint8_t* from) { return get32(from) | uint64_t{get32(from + 4)} << 32; }

}  // namespace verbena::wire
