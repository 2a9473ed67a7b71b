// SPDX-License-Identifier: BSD-2-Clause
//
// Copies of a few dozen bytes without a function call: memcpy(3) of unknown length costs as much as the rest
// of a small send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena {

// Like std::memcpy, but inline up to 96 bytes. Longer copies call std::memcpy.
inline void copy_small(void* to, const void* from, size_t size) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  struct Bytes16 {
    uint64_t words[2];
  };
  struct Bytes32 {
    uint64_t words[4];
  };
  // A block at the beginning and one at the end, which may overlap.
  const auto copy = [](unsigned char* there, const unsigned char* here, auto block) {
    std::memcpy(&block, here, sizeof block);
    std::memcpy(there, &block, sizeof block);
  };
  const auto copy_ends = [&](auto block) {
    copy(out, in, block);
    copy(out + size - sizeof block, in + size - sizeof block, block);
  };
  if (size > 96) {
    std::memcpy(to, from, size);
  } else if (size >= 32) {
    if (size > 64) copy(out + 32, in + 32, Bytes32{});
    copy_ends(Bytes32{});
  } else if (size >= 16) {
    copy_ends(Bytes16{});
  } else if (size >= 8) {
    copy_ends(uint64_t{});
  } else if (size >= 4) {
    copy_ends(uint32_t{});
  } else {
    for (size_t at = 0; at < size; ++at) out[at] = in[at];
  }
}

}  // namespace verbena
