// SPDX-License-Identifier: BSD-2-Clause
//
// The invariant CRC of a RoCE v2 packet: the CRC-32 of Ethernet over what routers leave as it is. Fields that
// change on the way count as ones: 8 bytes in place of a link header, of IPv4 the type of service, TTL and
// checksum, of IPv6 the traffic class, flow label and hop limit, the checksum of UDP, and byte 4 of the BTH.
//
// Sources: InfiniBand Architecture Specification vol. 1, 7.8.1 and annex A17.3.3; the kernel's rxe_icrc.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce {

// What a UDP socket cannot say of a datagram is an argument: of IPv4 the identification and the DF flag.
struct Ipv4Flow {
  uint8_t source[4];
  uint8_t destination[4];
  uint16_t source_port;
  uint16_t destination_port;
  uint16_t identification = 0;
  bool dont_fragment = true;
};

struct Ipv6Flow {
  uint8_t source[16];
  uint8_t destination[16];
  uint16_t source_port;
  uint16_t destination_port;
};

// `packet`: from the BTH to the padding, at least 12 bytes, less than 65,000. put_icrc() appends the result.
uint32_t icrc(const Ipv4Flow& flow, std::span<const uint8_t> packet) noexcept;
uint32_t icrc(const Ipv6Flow& flow, std::span<const uint8_t> packet) noexcept;

// The four bytes after the padding: little-endian.
void put_icrc(uint8_t* to, uint32_t icrc) noexcept;
uint32_t get_icrc(const uint8_t* from) noexcept;

// The identification with which the ICRC of `packet` would be `found`, for a sender that does not always
// write 0 (rxe). False: there is none, so the packet is damaged, or its addresses have been translated.
// `flow.identification` is ignored. Of the 32 bits of the check, 16 are left.
bool find_identification(const Ipv4Flow& flow, std::span<const uint8_t> packet, uint32_t found,
                         uint16_t* identification) noexcept;
// The same for a packet of so many bytes whose ICRC with identification 0 is known.
bool find_identification(size_t packet, uint32_t with_zero, uint32_t found,
                         uint16_t* identification) noexcept;

}  // namespace verbena::roce
