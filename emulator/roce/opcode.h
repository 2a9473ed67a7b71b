// SPDX-License-Identifier: BSD-2-Clause
//
// What the opcode of a BTH says: the transport in its upper three bits, the operation and the place of the
// packet in its message in the lower five, and from these which headers follow. One table.
//
// Sources: InfiniBand Architecture Specification vol. 1, table 38 (9.2.1), annexes A14 and A17; for ATOMIC
// WRITE (vol. 1 rel. 1.5, 9.4.8) <rdma/ib_pack.h> and rxe_opcode.c of Linux 6.2.
#pragma once

#include <cstdint>

namespace verbena::roce {

enum class TransportKind : uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

enum class Operation : uint8_t {
  kSend,
  kWrite,
  kRead,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kAtomicWrite,
  kCongestion,  // CNP
};

// The lower five bits.
enum class PacketType : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kAtomicWrite = 0x1d,
};

// Headers after the BTH, in this order.
enum HeaderBit : uint16_t {
  kHasDeth = 1,
  kHasXrceth = 2,
  kHasReth = 4,
  kHasAtomicEth = 8,
  kHasAeth = 16,
  kHasAtomicAckEth = 32,
  kHasImmDt = 64,
  kHasIeth = 128,
};

struct OpcodeInfo {
  TransportKind transport;
  PacketType type;
  Operation operation;
  bool begins;       // the first or only packet of a message, or of a response
  bool ends;         // the last or only one
  bool has_payload;  // it may have one
  uint16_t headers;  // HeaderBit
};

constexpr uint8_t opcode_of(TransportKind transport, PacketType type) noexcept {
  return static_cast<uint8_t>(static_cast<unsigned>(transport) << 5 | static_cast<unsigned>(type));
}
inline constexpr uint8_t kCnpOpcode = 0x81;

// nullptr: no such opcode (RD, which no adapter has, is none).
const OpcodeInfo* find_opcode(uint8_t opcode) noexcept;

}  // namespace verbena::roce
