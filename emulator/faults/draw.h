// SPDX-License-Identifier: BSD-2-Clause
//
// Numbers that depend on nothing but what they are drawn for: draws do not depend on the order of threads.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "mix.h"

namespace verbena::faults {

inline uint64_t draw(std::initializer_list<uint64_t> what) {
  uint64_t x = 0;
  for (const uint64_t part : what) x = mix((x ^ part) + 0x9e3779b97f4a7c15u);
  return x;
}

// 0 to 1, without 1.
inline double fraction(uint64_t drawn) { return static_cast<double>(drawn >> 11) * 0x1p-53; }

inline uint64_t between(uint64_t least, uint64_t most, uint64_t drawn) {
  return most <= least ? least : least + drawn % (most - least + 1);
}

}  // namespace verbena::faults
