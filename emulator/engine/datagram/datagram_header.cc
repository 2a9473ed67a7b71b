// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_header.h"

#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <cstddef>
#include <cstring>

namespace verbena {
namespace {

constexpr uint8_t kIbNextHeader = 0x1b;
constexpr uint8_t kIpv6Version = 6;
constexpr uint32_t kFlowLabelMask = 0xfffff;

// Bytes around a datagram's payload (vol. 1, 9.2, 9.3, 9.8.3; Annex A17, 3.2).
constexpr uint32_t kUdpHeader = 8, kBaseHeader = 12, kDatagramHeader = 8, kImmediate = 4, kInvariantCrc = 4;

constexpr size_t kIpv4At = kGrhBytes - sizeof(iphdr);
static_assert(sizeof(iphdr) == 20 && sizeof(ibv_grh) == kGrhBytes);

bool is_ipv4_mapped(const uint8_t* gid) noexcept {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid, kPrefix, sizeof kPrefix) == 0;
}

// RFC 1071.
uint16_t checksum(const iphdr& header) noexcept {
  uint16_t words[sizeof header / 2];
  std::memcpy(words, &header, sizeof header);
  uint32_t sum = 0;
  for (const uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

NetworkHeader network_header(const GidEntry& source, const ibv_gid& dgid) noexcept {
  if (source.type == GidType::kIb) return NetworkHeader::kInfiniband;
  return is_ipv4_mapped(source.raw.data()) && is_ipv4_mapped(dgid.raw) ? NetworkHeader::kIpv4
                                                                       : NetworkHeader::kIpv6;
}

bool is_multicast(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xff || (is_ipv4_mapped(gid.raw) && (gid.raw[12] & 0xf0) == 0xe0);
}

DatagramHeader DatagramHeader::of(const GidEntry& source, const ibv_global_route& route) noexcept {
  DatagramHeader header;
  header.kind = network_header(source, route.dgid);
  if (header.kind == NetworkHeader::kIpv4) {
    iphdr ip{};
    ip.version = 4;
    ip.ihl = sizeof ip / 4;
    ip.tos = route.traffic_class;
    ip.frag_off = htobe16(IP_DF);
    ip.ttl = route.hop_limit;
    ip.protocol = IPPROTO_UDP;
    std::memcpy(&ip.saddr, &source.raw[12], 4);
    std::memcpy(&ip.daddr, &route.dgid.raw[12], 4);
    std::memcpy(&header.bytes[kIpv4At], &ip, sizeof ip);
    return header;
  }
  ibv_grh grh{};
  grh.version_tclass_flow = htobe32(uint32_t{kIpv6Version} << 28 | uint32_t{route.traffic_class} << 20 |
                                    (route.flow_label & kFlowLabelMask));
  grh.next_hdr = header.kind == NetworkHeader::kInfiniband ? kIbNextHeader : uint8_t{IPPROTO_UDP};
  grh.hop_limit = route.hop_limit;
  std::memcpy(grh.sgid.raw, source.raw.data(), 16);
  grh.dgid = route.dgid;
  std::memcpy(header.bytes.data(), &grh, sizeof grh);
  return header;
}

void DatagramHeader::set_length(uint32_t length, bool immediate) noexcept {
  const uint32_t padded = (length + 3) & ~3u;
  const uint32_t transport =
      kBaseHeader + kDatagramHeader + (immediate ? kImmediate : 0) + padded + kInvariantCrc;
  switch (kind) {
    case NetworkHeader::kNone:
      return;
    case NetworkHeader::kIpv4: {
      iphdr ip;
      std::memcpy(&ip, &bytes[kIpv4At], sizeof ip);
      ip.tot_len = htobe16(static_cast<uint16_t>(sizeof ip + kUdpHeader + transport));
      ip.check = 0;
      ip.check = checksum(ip);
      std::memcpy(&bytes[kIpv4At], &ip, sizeof ip);
      return;
    }
    case NetworkHeader::kIpv6:
    case NetworkHeader::kInfiniband: {
      const uint32_t udp = kind == NetworkHeader::kIpv6 ? kUdpHeader : 0;
      const uint16_t in_network_order = htobe16(static_cast<uint16_t>(udp + transport));
      std::memcpy(&bytes[offsetof(ibv_grh, paylen)], &in_network_order, sizeof in_network_order);
      return;
    }
  }
}

}  // namespace verbena
