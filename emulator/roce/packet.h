// SPDX-License-Identifier: BSD-2-Clause
//
// A RoCE v2 packet: what a UDP datagram of port 4791 carries, except for the ICRC at its end (icrc.h). Pure
// functions; bytes from the network are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/headers.h"
#include "roce/opcode.h"

namespace verbena::roce {

// Which of the headers after `bth` count: OpcodeInfo::headers. `bth.pad` follows from the payload.
struct Packet {
  Bth bth;
  Deth deth;
  Xrceth xrceth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  AtomicAckEth atomic_ack;
  ImmDt immediate;
  Ieth invalidate;
  std::span<const uint8_t> payload;  // not owned
};

// The longest packet: an XRC WRITE_ONLY with immediate of 4096 bytes, with its ICRC.
inline constexpr size_t kMaxHeaders = 12 + 8 + 4 + 28 + 4 + 8;
inline constexpr size_t kMaxPacket = kMaxHeaders + 4096 + kIcrcSize;

enum class Parsed : uint8_t {
  kPacket,
  kTooShort,  // the headers that its opcode names are not all there
  kUnknownOpcode,
  kBadVersion,
  kBadPadding,  // more padding than payload, or a payload and padding that are no multiple of 4 bytes
  kUnexpectedPayload,
};

// `datagram`: the whole payload of UDP, ICRC included. `out->payload` points into it.
Parsed parse(std::span<const uint8_t> datagram, Packet* out) noexcept;

// Bytes of headers, payload and padding, without the ICRC. 0: the opcode is none.
size_t packet_size(const Packet& packet) noexcept;

// Writes headers, payload and padding. Returns packet_size(); 0, and nothing is written, if that is 0 or
// `out` is too small. The payload may lie in its place in `out` already.
size_t write(const Packet& packet, std::span<uint8_t> out) noexcept;

}  // namespace verbena::roce
