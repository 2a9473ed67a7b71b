// SPDX-License-Identifier: BSD-2-Clause
//
// Ranges of addresses, as `verbena run --peers` names them. They lie in shared memory (device_table.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace verbena {

// The addresses whose first `bits` bits are those of `address`. IPv4 addresses are mapped to ::ffff:a.b.c.d,
// so that 192.0.2.0/24 has 120 bits.
struct AddressRange {
  std::array<uint8_t, 16> address;  // as in a GID
  uint32_t bits;                    // 0 to 128

  bool operator==(const AddressRange&) const = default;
};
static_assert(sizeof(AddressRange) == 20);

inline constexpr uint32_t kMaxPeerRanges = 32;

constexpr bool contains(const AddressRange& range, const std::array<uint8_t, 16>& address) {
  const uint32_t bits = std::min(range.bits, 128u);
  for (uint32_t i = 0; i < bits; i += 8) {
    const auto mask = static_cast<uint8_t>(bits - i >= 8 ? 0xff : 0xff << (8 - (bits - i)));
    if (((range.address[i / 8] ^ address[i / 8]) & mask) != 0) return false;
  }
  return true;
}

// Is the address in one of the ranges? No ranges: every address is.
constexpr bool is_in(std::span<const AddressRange> ranges, const std::array<uint8_t, 16>& address) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(),
                                       [&](const AddressRange& range) { return contains(range, address); });
}

}  // namespace verbena
