// SPDX-License-Identifier: BSD-2-Clause
#include "roce/icrc.h"

#include <array>
#include <cstring>

#include "roce/field.h"

namespace verbena::roce {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;
constexpr size_t kBthSize = 12;
constexpr size_t kBthReserved = 4;  // FECN, BECN and reserved bits

// kTables[k][b]: the CRC of byte b with k bytes of zero after it. Eight bytes are taken at once.
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte)
    for (size_t k = 1; k < tables.size(); ++k)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
constexpr Tables kTables = make_tables();

uint32_t little_endian(const uint8_t* from) {
  return uint32_t{from[0]} | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 | uint32_t{from[3]} << 24;
}

// The headers in front of the packet, and its BTH, with the fields that may change as ones.
template <size_t kSize>
uint32_t icrc_of(const std::array<uint8_t, kSize>& headers, std::span<const uint8_t> packet) {
  std::array<uint8_t, kBthSize> bth;
  std::memcpy(bth.data(), packet.data(), kBthSize);
  bth[kBthReserved] = 0xff;
  uint32_t state = crc32_update(~0u, headers);
  state = crc32_update(state, bth);
  return ~crc32_update(state, packet.subspan(kBthSize));
}

constexpr size_t kLinkSize = 8, kUdpSize = 8, kIpv4Size = 20, kIpv6Size = 40;

void put_udp(uint8_t* to, uint16_t source_port, uint16_t destination_port, size_t packet) {
  put_bits(to, 0, 16, source_port);
  put_bits(to, 16, 16, destination_port);
  put_bits(to, 32, 16, kUdpSize + packet + 4);
  put_bits(to, 48, 16, 0xffff);
}

// ---- polynomials modulo that of the CRC; the most significant bit is the coefficient of x^0 ----

constexpr uint32_t kOne = 0x80000000;
constexpr uint32_t kX = 0x40000000;

constexpr uint32_t times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? b >> 1 ^ kPolynomial : b >> 1;
  }
  return product;
}

constexpr uint32_t power_of_x(uint32_t exponent) {
  uint32_t result = kOne, square = kX;
  for (; exponent != 0; exponent >>= 1, square = times(square, square))
    if ((exponent & 1) != 0) result = times(result, square);
  return result;
}

}  // namespace

uint32_t crc32_update(uint32_t state, std::span<const uint8_t> bytes) noexcept {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const uint32_t low = little_endian(at) ^ state, high = little_endian(at + 4);
    state = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^
            kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^
            kTables[1][high >> 16 & 0xff] ^ kTables[0][high >> 24];
  }
  for (; left != 0; ++at, --left) state = state >> 8 ^ kTables[0][(state ^ *at) & 0xff];
  return state;
}

uint32_t icrc(const Ipv4Flow& flow, std::span<const uint8_t> packet) noexcept {
  std::array<uint8_t, kLinkSize + kIpv4Size + kUdpSize> headers{};
  headers.fill(0xff);
  uint8_t* const ip = headers.data() + kLinkSize;
  ip[0] = 0x45;
  put_bits(ip, 16, 16, kIpv4Size + kUdpSize + packet.size() + 4);
  put_bits(ip, 32, 16, flow.identification);
  put_bits(ip, 48, 16, flow.dont_fragment ? 0x4000 : 0);
  ip[9] = 17;
  std::memcpy(ip + 12, flow.source, 4);
  std::memcpy(ip + 16, flow.destination, 4);
  put_udp(ip + kIpv4Size, flow.source_port, flow.destination_port, packet.size());
  return icrc_of(headers, packet);
}

uint32_t icrc(const Ipv6Flow& flow, std::span<const uint8_t> packet) noexcept {
  std::array<uint8_t, kLinkSize + kIpv6Size + kUdpSize> headers{};
  headers.fill(0xff);
  uint8_t* const ip = headers.data() + kLinkSize;
  ip[0] = 0x6f;
  put_bits(ip, 32, 16, kUdpSize + packet.size() + 4);
  ip[6] = 17;
  std::memcpy(ip + 8, flow.source, 16);
  std::memcpy(ip + 24, flow.destination, 16);
  put_udp(ip + kIpv6Size, flow.source_port, flow.destination_port, packet.size());
  return icrc_of(headers, packet);
}

void put_icrc(uint8_t* to, uint32_t icrc) noexcept {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(icrc >> (8 * i));
}

uint32_t get_icrc(const uint8_t* from) noexcept { return little_endian(from); }

// A CRC is linear: the difference of the CRCs is the CRC of the difference, which is the identification and
// nothing else. The bytes after it multiply it by a power of x, which divides it out again. What is left must
// be a number of 16 bits.
bool find_identification(const Ipv4Flow& flow, std::span<const uint8_t> packet, uint32_t found,
                         uint16_t* identification) noexcept {
  Ipv4Flow zero = flow;
  zero.identification = 0;
  const uint32_t difference = icrc(zero, packet) ^ found;
  constexpr size_t kFromIdentification = kIpv4Size - 4 + kUdpSize;  // to the end of the headers
  const auto bits = static_cast<uint32_t>(8 * (kFromIdentification + packet.size()));
  // x has the order 2^32 - 1.
  const uint32_t bytes = times(difference, power_of_x(0xffffffff - bits));
  if (bytes >> 16 != 0) return false;
  // The first byte of a message is in the lowest byte of the state.
  *identification = static_cast<uint16_t>((bytes & 0xff) << 8 | bytes >> 8);
  return true;
}

}  // namespace verbena::roce
