// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/pacing.h"

#include <algorithm>

#include "engine/rules/psn.h"

namespace verbena {
namespace {

constexpr uint64_t kNsInBitsAtOneKbps = 1'000'000;

// The time that `bytes` take at the rate, ns. The product does not overflow: 2^31 bytes in 2^19 packets at 1
// kbps are 2^54 ns.
int64_t duration(uint32_t rate_kbps, uint64_t bytes) {
  return static_cast<int64_t>(bytes * 8 * kNsInBitsAtOneKbps / rate_kbps);
}

}  // namespace

Pacing pacing_of(const PacingLimits& limits, uint32_t mtu) noexcept {
  if (limits.rate_kbps == 0) return {};
  const uint32_t in_a_millisecond = limits.rate_kbps / 8;
  const uint32_t packet = (limits.packet_bytes != 0 ? limits.packet_bytes : mtu) + kPacketHeaders;
  const uint32_t burst = limits.burst_bytes != 0 ? limits.burst_bytes : std::max(in_a_millisecond, packet);
  return {.rate_kbps = limits.rate_kbps, .burst_bytes = std::max(burst, kShortestPiece)};
}

uint32_t piece_of(const Pacing& pacing, uint32_t most) noexcept {
  return pacing.rate_kbps == 0 ? most : std::min(pacing.burst_bytes, most);
}

uint64_t bytes_on_wire(uint64_t payload, uint32_t mtu) noexcept {
  return payload + packets_of(payload, mtu) * kPacketHeaders;
}

int64_t may_go_at(const Pacing& pacing, uint64_t bytes) noexcept {
  // More bytes than the depth of the bucket may be sent when the bucket is full.
  const uint64_t needed = std::min<uint64_t>(bytes, pacing.burst_bytes);
  return pacing.paid_at - duration(pacing.rate_kbps, pacing.burst_bytes - needed);
}

void charge(Pacing& pacing, uint64_t bytes, int64_t now) noexcept {
  pacing.paid_at = std::max(pacing.paid_at, now) + duration(pacing.rate_kbps, bytes);
}

}  // namespace verbena
