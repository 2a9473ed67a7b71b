// SPDX-License-Identifier: BSD-2-Clause
#include "roce/icrc.h"

#include <array>
#include <cstring>

#include "roce/crc32.h"
#include "roce/packet.h"

namespace verbena::roce {
namespace {

constexpr size_t kBthSize = 12;
constexpr size_t kBthReserved = 4;  // FECN, BECN and reserved bits

constexpr size_t kLinkSize = 8, kUdpSize = 8, kIpv4Size = 20, kIpv6Size = 40;

// The state after the ones in place of a link header.
constexpr uint32_t state_after_link() {
  uint32_t state = ~0u;
  for (size_t bit = 0; bit < 8 * kLinkSize; ++bit)
    state = ((state ^ 1) & 1) != 0 ? state >> 1 ^ kCrcPolynomial : state >> 1;
  return state;
}
constexpr uint32_t kAfterLink = state_after_link();

// The headers of IP and UDP, with the fields that may change as ones, and space for the BTH: the CRC of one
// run of bytes costs less than that of two, and most packets are short.
template <size_t kIpSize>
using HeaderBytes = std::array<uint8_t, kIpSize + kUdpSize + kBthSize>;

template <size_t kSize>
uint32_t icrc_of(std::array<uint8_t, kSize>& headers, std::span<const uint8_t> packet) {
  uint8_t* const bth = headers.data() + kSize - kBthSize;
  std::memcpy(bth, packet.data(), kBthSize);
  bth[kBthReserved] = 0xff;
  return ~crc32_update(crc32_update(kAfterLink, headers), packet.subspan(kBthSize));
}

void put_number(uint8_t* to, size_t value) {
  to[0] = static_cast<uint8_t>(value >> 8);
  to[1] = static_cast<uint8_t>(value);
}

void put_udp(uint8_t* to, uint16_t source_port, uint16_t destination_port, size_t packet) {
  put_number(to, source_port);
  put_number(to + 2, destination_port);
  put_number(to + 4, kUdpSize + packet + 4);
  put_number(to + 6, 0xffff);
}

// What the identification is multiplied by in the CRC, upside down, by the length of the packet in words.
constexpr size_t kFromIdentification = kIpv4Size - 4 + kUdpSize;  // bytes to the end of the headers
constexpr size_t kWords = kMaxPacket / 4 + 1;
constexpr std::array<uint32_t, kWords> make_inverses() {
  std::array<uint32_t, kWords> inverses{};
  // x has the order 2^32 - 1.
  const uint32_t word = power_of_x(0xffffffff - 32);
  inverses[0] = power_of_x(0xffffffff - static_cast<uint32_t>(8 * kFromIdentification));
  for (size_t i = 1; i < inverses.size(); ++i) inverses[i] = multiply_polynomials(inverses[i - 1], word);
  return inverses;
}
constexpr std::array<uint32_t, kWords> kInverses = make_inverses();

uint32_t inverse_of(size_t packet) {
  if (packet % 4 == 0 && packet / 4 < kInverses.size()) return kInverses[packet / 4];
  return power_of_x(0xffffffff - static_cast<uint32_t>(8 * (kFromIdentification + packet)));
}

}  // namespace

uint32_t icrc(const Ipv4Flow& flow, std::span<const uint8_t> packet) noexcept {
  HeaderBytes<kIpv4Size> headers;
  headers.fill(0xff);
  uint8_t* const ip = headers.data();
  ip[0] = 0x45;
  put_number(ip + 2, kIpv4Size + kUdpSize + packet.size() + 4);
  put_number(ip + 4, flow.identification);
  put_number(ip + 6, flow.dont_fragment ? 0x4000 : 0);
  ip[9] = 17;
  std::memcpy(ip + 12, flow.source, 4);
  std::memcpy(ip + 16, flow.destination, 4);
  put_udp(ip + kIpv4Size, flow.source_port, flow.destination_port, packet.size());
  return icrc_of(headers, packet);
}

uint32_t icrc(const Ipv6Flow& flow, std::span<const uint8_t> packet) noexcept {
  HeaderBytes<kIpv6Size> headers;
  headers.fill(0xff);
  uint8_t* const ip = headers.data();
  ip[0] = 0x6f;
  put_number(ip + 4, kUdpSize + packet.size() + 4);
  ip[6] = 17;
  std::memcpy(ip + 8, flow.source, 16);
  std::memcpy(ip + 24, flow.destination, 16);
  put_udp(ip + kIpv6Size, flow.source_port, flow.destination_port, packet.size());
  return icrc_of(headers, packet);
}

void put_icrc(uint8_t* to, uint32_t icrc) noexcept {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(icrc >> (8 * i));
}

uint32_t get_icrc(const uint8_t* from) noexcept {
  return uint32_t{from[0]} | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 | uint32_t{from[3]} << 24;
}

// A CRC is linear: the difference of the CRCs is the CRC of the difference, which is the identification and
// nothing else. The bytes after it multiply it by a power of x, which is divided out again. What is left must
// be a number of 16 bits.
bool find_identification(size_t packet, uint32_t with_zero, uint32_t found,
                         uint16_t* identification) noexcept {
  const uint32_t bytes = multiply_polynomials(with_zero ^ found, inverse_of(packet));
  if (bytes >> 16 != 0) return false;
  // The first byte of a message is in the lowest byte of the state.
  *identification = static_cast<uint16_t>((bytes & 0xff) << 8 | bytes >> 8);
  return true;
}

bool find_identification(const Ipv4Flow& flow, std::span<const uint8_t> packet, uint32_t found,
                         uint16_t* identification) noexcept {
  Ipv4Flow zero = flow;
  zero.identification = 0;
  return find_identification(packet.size(), icrc(zero, packet), found, identification);
}

}  // namespace verbena::roce
