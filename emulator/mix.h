// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace verbena {

// Every bit of the result depends on every bit of `x`: Stafford's variant 13 of the MurmurHash3 finaliser, as
// splitmix64 has it (https://prng.di.unimi.it/splitmix64.c).
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace verbena
