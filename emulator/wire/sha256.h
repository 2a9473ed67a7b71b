// SPDX-License-Identifier: BSD-2-Clause
//
// SHA-256 (FIPS 180-4, 6.2) and HMAC with it (FIPS 198-1; RFC 2104). Small rather than fast: it hashes a few
// hundred bytes for each connection between nodes. A library for this would be loaded into the user's
// process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace verbena::wire {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void add(std::span<const uint8_t> bytes);
  Digest finish();  // once

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t length_ = 0;  // bytes so far
};

Digest sha256(std::span<const uint8_t> bytes);

// The concatenation of `parts` is the message. Keys may have any length.
Digest hmac_sha256(std::span<const uint8_t> key, std::initializer_list<std::span<const uint8_t>> parts);

// The time does not depend on the digests.
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace verbena::wire
