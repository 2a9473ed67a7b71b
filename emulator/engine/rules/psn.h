// SPDX-License-Identifier: BSD-2-Clause
//
// Packet sequence numbers: 24 bits, modulo 2^24. Two PSNs compare by the shorter distance, so a window is at
// most 2^23 wide (InfiniBand Architecture Specification vol. 1, 9.7.2).
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>

namespace verbena {

inline constexpr uint32_t kPsnMask = 0xffffff;
inline constexpr uint32_t kPsnWindow = 1u << 23;  // half the ring: the most that can be outstanding

// The PSN in a 32-bit number from the program. Higher bits are dropped (kernel verbs.c, _ib_modify_qp()).
constexpr uint32_t psn_of(uint32_t number) noexcept { return number & kPsnMask; }

constexpr uint32_t psn_add(uint32_t psn, uint64_t packets) noexcept {
  return static_cast<uint32_t>((psn + packets) & kPsnMask);
}

constexpr uint32_t psn_next(uint32_t psn) noexcept { return psn_add(psn, 1); }

// How far `to` lies after `from`: -2^23 .. 2^23 - 1; negative: before it.
constexpr int32_t psn_distance(uint32_t from, uint32_t to) noexcept {
  const uint32_t ahead = (to - from) & kPsnMask;
  return ahead < kPsnWindow ? static_cast<int32_t>(ahead)
                            : static_cast<int32_t>(ahead) - static_cast<int32_t>(kPsnMask) - 1;
}

// Bytes of an IBV_MTU_ value: 256 .. 4096. 0 for any other number.
constexpr uint32_t mtu_bytes(unsigned mtu) noexcept {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

// PSNs that a message of `length` bytes takes: at least 1. A READ takes as many as its response has packets
// (9.7.2), an atomic takes 1: pass length 8. `mtu` in bytes, a power of two.
constexpr uint64_t packets_of(uint64_t length, uint32_t mtu) noexcept {
  return length == 0 ? 1 : ((length - 1) >> std::countr_zero(mtu)) + 1;
}

}  // namespace verbena
