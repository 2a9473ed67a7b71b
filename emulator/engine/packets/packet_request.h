// SPDX-License-Identifier: BSD-2-Clause
//
// What the two machines of this folder work on: requests as they travel in packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/packet.h"

namespace verbena::packets {

enum class Kind : uint8_t { kSend, kWrite, kRead, kCompareSwap, kFetchAdd, kAtomicWrite };

// Does a response finish the request? An acknowledgement finishes the others.
constexpr bool brings_response(Kind kind) { return kind >= Kind::kRead; }

// Is what was in memory before the response? (That to an ATOMIC WRITE is the one to a READ of no bytes.)
constexpr bool brings_value(Kind kind) { return kind == Kind::kCompareSwap || kind == Kind::kFetchAdd; }

// A request of a send queue. Immediates are numbers in the order of the host (roce/headers.h).
struct PacketRequest {
  uint64_t number = 0;  // running number of the queue pair
  Kind kind = Kind::kSend;
  bool solicited = false;
  bool has_immediate = false;
  bool has_invalidate = false;  // kSend: `immediate` is the rkey
  bool fenced = false;          // starts when no response is awaited
  uint32_t immediate = 0;
  uint32_t length = 0;  // bytes; of an atomic 8
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;  // as ibv_send_wr::wr.atomic
  uint64_t swap = 0;
  uint32_t srqn = 0;  // XRC
};

inline constexpr size_t kMostPayload = 4096;  // bytes

// A packet to be sent, and where its payload is to lie: kMostPayload bytes of the caller's.
struct OutgoingPacket {
  explicit OutgoingPacket(uint8_t* where) : space(where) {}

  roce::Packet packet;  // `payload` points into `space`
  uint8_t* space;

  // The first `size` bytes are the payload from now on.
  std::span<uint8_t> make_payload(size_t size) {
    packet.payload = {space, size};
    return {space, size};
  }
};

// The same with its own bytes.
struct OwnedOutgoingPacket : OutgoingPacket {
  OwnedOutgoingPacket() : OutgoingPacket(bytes) {}
  OwnedOutgoingPacket(const OwnedOutgoingPacket&) = delete;
  OwnedOutgoingPacket& operator=(const OwnedOutgoingPacket&) = delete;

  uint8_t bytes[kMostPayload];
};

// What both ends of a connection have agreed on.
struct Connection {
  bool reliable = true;  // RC or XRC; false: UC
  uint32_t mtu = 1024;   // bytes, a power of two, 256 .. 4096
  uint32_t remote_qpn = 0;
  uint16_t pkey = roce::kDefaultPkey;

  bool is_extended = false;  // XRC

  roce::TransportKind transport() const {
    if (is_extended) return roce::TransportKind::kXrc;
    return reliable ? roce::TransportKind::kRc : roce::TransportKind::kUc;
  }
};

}  // namespace verbena::packets
