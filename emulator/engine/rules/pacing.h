// SPDX-License-Identifier: BSD-2-Clause
//
// Packet pacing (ibv_modify_qp_rate_limit(3)): when a queue pair with a rate limit may send, and what each
// message costs. A token bucket, kept as one number: the time at which everything sent so far is paid for.
// Pure functions.
//
// Counted are the bytes that the requests of the send queue would put on an Ethernet with RoCE v2:
// - SEND and WRITE: the payload, and the headers of each packet;
// - READ and atomic: the request alone. The response is sent by the other end.
//
// max_burst_sz is the depth of the bucket, and the longest chunk of a message that is sent at once. Its
// default is the bytes of one millisecond, but at least one packet of typical_pkt_sz. The default of
// typical_pkt_sz is the path MTU.
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
  uint32_t rate_kbps = 0;    // 0: not paced; the other fields are unused
  uint32_t burst_bytes = 0;  // at least kShortestPiece
  int64_t paid_at = 0;       // ns of CLOCK_MONOTONIC: everything sent so far is paid for then
  int64_t held_until = 0;    // ns: the head of the send queue may be sent then; 0: nothing is held back
};

inline constexpr uint32_t kShortestPiece = 4096;
// Ethernet 14 + 4, IPv4 20, UDP 8, BTH 12, ICRC 4 (InfiniBand vol. 1, annex 17). Preamble and gap do not
// count.
inline constexpr uint32_t kPacketHeaders = 62;

// The bucket for these limits, full. `mtu`: of the queue pair, bytes.
Pacing pacing_of(const PacingLimits& limits, uint32_t mtu) noexcept;

// The longest chunk of a message that is sent at once, at most `most` bytes.
uint32_t piece_of(const Pacing& pacing, uint32_t most) noexcept;

// The bytes to charge for `payload` bytes: payload and packet headers.
uint64_t bytes_on_wire(uint64_t payload, uint32_t mtu) noexcept;

// The earliest time at which `bytes` may be sent, ns of CLOCK_MONOTONIC. May be in the past.
int64_t may_go_at(const Pacing& pacing, uint64_t bytes) noexcept;

// Charges `bytes` that are sent at `now`.
void charge(Pacing& pacing, uint64_t bytes, int64_t now) noexcept;

}  // namespace verbena
