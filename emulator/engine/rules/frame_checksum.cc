// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/frame_checksum.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <optional>

#include "engine/rules/flow_fields.h"

namespace verbena {
namespace {

constexpr uint16_t kTypeIpv4 = 0x0800, kTypeIpv6 = 0x86dd, kTypeVlan = 0x8100, kTypeServiceVlan = 0x88a8;
constexpr uint32_t kIpv4Checksum = 10;  // where it is in the header

uint16_t word_at(const uint8_t* bytes) {
  uint16_t word;
  std::memcpy(&word, bytes, sizeof word);
  return ntohs(word);
}

void put_word(uint8_t* bytes, uint16_t word) {
  word = htons(word);
  std::memcpy(bytes, &word, sizeof word);
}

// Where the parts of a packet are, as offsets in its frame.
struct Packet {
  uint32_t ip = 0;
  uint32_t ip_header = 0;      // its length; 0: IPv6, whose header has no checksum
  uint32_t addresses = 0;      // source and destination
  uint32_t address_bytes = 0;  // of both
  uint8_t protocol = 0;        // IPPROTO_UDP, IPPROTO_TCP, or another
  uint32_t transport = 0;
  uint32_t transport_bytes = 0;  // with its header. 0: a fragment, or too short for one

  // Where the transport's checksum is. Nothing: it has none that is known here.
  std::optional<uint32_t> checksum() const {
    const uint32_t header = protocol == IPPROTO_UDP ? 8 : protocol == IPPROTO_TCP ? 20 : 0;
    if (header == 0 || transport_bytes < header) return std::nullopt;
    return transport + (protocol == IPPROTO_UDP ? 6 : 16);
  }
};

// RFC 791.
std::optional<Packet> find_ipv4(const uint8_t* frame, uint32_t length, uint32_t at) {
  const uint8_t* const header = frame + at;
  if (length - at < 20 || header[0] >> 4 != 4) return std::nullopt;
  const uint32_t header_bytes = (header[0] & 15) * 4u, packet_bytes = word_at(header + 2);
  if (header_bytes < 20 || packet_bytes < header_bytes || packet_bytes > length - at) return std::nullopt;
  Packet out{at, header_bytes, at + 12, 8, header[9], at + header_bytes, packet_bytes - header_bytes};
  const bool is_fragment = (word_at(header + 6) & 0x3fff) != 0;  // more of them, or an offset
  if (is_fragment) out.transport_bytes = 0;
  return out;
}

// RFC 8200.
std::optional<Packet> find_ipv6(const uint8_t* frame, uint32_t length, uint32_t at) {
  const uint8_t* const header = frame + at;
  if (length - at < 40 || header[0] >> 4 != 6) return std::nullopt;
  const uint32_t bytes = word_at(header + 4);
  if (bytes > length - at - 40) return std::nullopt;
  return Packet{at, 0, at + 8, 32, header[6], at + 40, bytes};
}

std::optional<Packet> find_packet(const uint8_t* frame, uint32_t length) {
  uint32_t at = kEthernetHeader;
  if (length < at) return std::nullopt;
  uint16_t type = word_at(frame + at - 2);
  while (type == kTypeVlan || type == kTypeServiceVlan) {
    at += kVlanTag;
    if (length < at) return std::nullopt;
    type = word_at(frame + at - 2);
  }
  if (type == kTypeIpv4) return find_ipv4(frame, length, at);
  if (type == kTypeIpv6) return find_ipv6(frame, length, at);
  return std::nullopt;
}

// RFC 1071: the sum of 16-bit words in one's complement arithmetic. At most 65,535 bytes, so that 32 bits do.
uint32_t sum(const uint8_t* bytes, uint32_t length) {
  uint32_t out = 0;
  for (uint32_t i = 0; i + 1 < length; i += 2) out += word_at(bytes + i);
  if (length % 2 != 0) out += uint32_t{bytes[length - 1]} << 8;
  return out;
}

uint16_t folded(uint32_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// With the pseudo-header: RFC 768, RFC 9293 3.1, RFC 8200 8.1.
uint16_t transport_sum(const uint8_t* frame, const Packet& packet) {
  return folded(sum(frame + packet.addresses, packet.address_bytes) + packet.protocol +
                packet.transport_bytes + sum(frame + packet.transport, packet.transport_bytes));
}

}  // namespace

void fill_in_checksums(uint8_t* frame, uint32_t length) noexcept {
  const auto packet = find_packet(frame, length);
  if (!packet) return;
  if (packet->ip_header != 0) {
    uint8_t* const header = frame + packet->ip;
    put_word(header + kIpv4Checksum, 0);
    put_word(header + kIpv4Checksum, static_cast<uint16_t>(~folded(sum(header, packet->ip_header))));
  }
  const auto place = packet->checksum();
  if (!place) return;
  put_word(frame + *place, 0);
  auto checksum = static_cast<uint16_t>(~transport_sum(frame, *packet));
  if (checksum == 0 && packet->protocol == IPPROTO_UDP) checksum = 0xffff;  // 0 would say that there is none
  put_word(frame + *place, checksum);
}

bool are_checksums_right(const uint8_t* frame, uint32_t length) noexcept {
  const auto packet = find_packet(frame, length);
  if (!packet || packet->ip_header == 0) return false;
  if (folded(sum(frame + packet->ip, packet->ip_header)) != 0xffff) return false;
  const auto place = packet->checksum();
  if (!place) return false;
  if (packet->protocol == IPPROTO_UDP && word_at(frame + *place) == 0) return false;
  return transport_sum(frame, *packet) == 0xffff;
}

}  // namespace verbena
