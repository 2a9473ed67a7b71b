// SPDX-License-Identifier: BSD-2-Clause
//
// Packet pacing (ibv_modify_qp_rate_limit(3)): when a queue pair with a rate may send, and what sending costs
// it. A token bucket, kept as the one time at which everything that has gone would have gone at the rate.
// Pure.
//
// What is counted is what the requests of the send queue would put on an Ethernet with RoCE v2: the bytes of
// SENDs and WRITEs, and for each packet its headers; of a READ or an atomic the request alone, since the
// answer is the other end's. max_burst_sz is the depth of the bucket and the longest piece of a message that
// goes at once; its default is what goes in a millisecond, but at least one typical packet, whose default is
// the path MTU.
#pragma once

#include <cstdint>

namespace verbena {

struct PacingLimits {
  uint32_t rate_kbps = 0;    // 0: none
  uint32_t burst_bytes = 0;  // 0: the default
  uint32_t packet_bytes = 0;
};

// Under Qp::send_lock.
struct Pacing {
  uint32_t rate_kbps = 0;    // 0: it is not paced, and nothing else counts
  uint32_t burst_bytes = 0;  // at least kShortestPiece
  int64_t paid_at = 0;       // ns of CLOCK_MONOTONIC: all that has gone has been paid for then
  int64_t held_until = 0;    // ns: what is at the head of the queue may go then; 0: nothing is held back
};

inline constexpr uint32_t kShortestPiece = 4096;
// Preamble and gap are the wire's own; Ethernet 14 + 4, IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand vol. 1,
// annex 17).
inline constexpr uint32_t kPacketHeaders = 62;

// `mtu`: the queue pair's, bytes.
Pacing pacing_of(const PacingLimits& limits, uint32_t mtu) noexcept;

// The longest piece of a message that goes at once, of those of up to `most` bytes.
uint32_t piece_of(const Pacing& pacing, uint32_t most) noexcept;

// What `payload` bytes cost, with their headers.
uint64_t bytes_on_wire(uint64_t payload, uint32_t mtu) noexcept;

// When `bytes` may go at the earliest; not after `now`: they may go now.
int64_t may_go_at(const Pacing& pacing, uint64_t bytes) noexcept;

// They have gone.
void charge(Pacing& pacing, uint64_t bytes, int64_t now) noexcept;

}  // namespace verbena
