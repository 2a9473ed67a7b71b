// SPDX-License-Identifier: BSD-2-Clause
//
// UD over packets: a message is one packet, nothing is acknowledged, and the only state is a PSN that nobody
// checks. Pure functions.
//
// Sources: InfiniBand Architecture Specification vol. 1, 9.8.3; the kernel's rxe_recv.c.
#pragma once

#include <cstdint>
#include <span>

#include "roce/packet.h"

namespace verbena::packets {

struct Datagram {
  uint32_t destination_qpn = 0;
  uint32_t source_qpn = 0;
  uint32_t qkey = 0;
  uint32_t psn = 0;
  uint16_t pkey = roce::kDefaultPkey;
  bool solicited = false;
  bool has_immediate = false;
  uint32_t immediate = 0;
  std::span<const uint8_t> payload;
};

roce::Packet packet_of(const Datagram& datagram) noexcept;

// Why a packet is not for a UD queue pair with this Q_Key and port MTU (bytes). Refused packets are dropped
// without an answer, and counted.
enum class Refused : uint8_t { kNot, kNoDatagram, kWrongPkey, kWrongQkey, kTooLong };

Refused accept(const roce::Packet& packet, uint16_t pkey, uint32_t qkey, uint32_t mtu,
               Datagram* out) noexcept;

// Do two P_Keys belong to one partition, and is at least one a full member of it?
constexpr bool pkeys_match(uint16_t a, uint16_t b) noexcept {
  return ((a ^ b) & 0x7fff) == 0 && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

}  // namespace verbena::packets
