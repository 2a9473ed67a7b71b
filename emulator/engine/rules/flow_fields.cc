// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/flow_fields.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace verbena {
namespace {

constexpr uint16_t kTypeIpv4 = 0x0800, kTypeIpv6 = 0x86dd, kTypeVlan = 0x8100, kTypeServiceVlan = 0x88a8;

class FrameReader {
 public:
  FrameReader(const uint8_t* bytes, uint32_t length) : at_(bytes), left_(length) {}
  // The next `size` bytes, or nullptr.
  const uint8_t* next(uint32_t size) {
    if (size > left_) return nullptr;
    const uint8_t* const here = at_;
    at_ += size;
    left_ -= size;
    return here;
  }

 private:
  const uint8_t* at_;
  uint32_t left_;
};

uint16_t word_at(const uint8_t* bytes) {
  uint16_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

void read_ports(FrameReader reader, FlowFields* out) {
  if (out->protocol != IPPROTO_TCP && out->protocol != IPPROTO_UDP) return;
  const uint8_t* const ports = reader.next(4);
  if (ports == nullptr) return;
  out->source_port = word_at(ports);
  out->destination_port = word_at(ports + 2);
}

// RFC 791.
void read_ipv4(FrameReader reader, FlowFields* out) {
  constexpr uint32_t kHeader = 20;
  const uint8_t* const header = reader.next(kHeader);
  if (header == nullptr || header[0] >> 4 != 4) return;
  out->ip_version = 4;
  out->traffic_class = header[1];
  out->hop_limit = header[8];
  out->protocol = header[9];
  std::copy_n(header + 12, 4, out->source_ip.begin());
  std::copy_n(header + 16, 4, out->destination_ip.begin());
  const uint32_t length = (header[0] & 15) * 4u;
  const bool is_later_fragment = (ntohs(word_at(header + 6)) & 0x1fff) != 0;
  if (!is_later_fragment && length >= kHeader && reader.next(length - kHeader) != nullptr)
    read_ports(reader, out);
}

// RFC 8200. Extension headers are not looked into.
void read_ipv6(FrameReader reader, FlowFields* out) {
  const uint8_t* const header = reader.next(40);
  if (header == nullptr || header[0] >> 4 != 6) return;
  uint32_t first;
  std::memcpy(&first, header, sizeof first);
  out->ip_version = 6;
  out->traffic_class = static_cast<uint8_t>(ntohl(first) >> 20);
  out->flow_label = first & htonl(0xfffff);
  out->protocol = header[6];
  out->hop_limit = header[7];
  std::copy_n(header + 8, 16, out->source_ip.begin());
  std::copy_n(header + 24, 16, out->destination_ip.begin());
  read_ports(reader, out);
}

}  // namespace

FlowFields fields_of_frame(const uint8_t* frame, uint32_t length) noexcept {
  FlowFields out{};
  FrameReader reader(frame, length);
  const uint8_t* const ethernet = reader.next(kEthernetHeader);
  if (ethernet == nullptr) return out;
  std::copy_n(ethernet, 6, out.destination_mac.begin());
  std::copy_n(ethernet + 6, 6, out.source_mac.begin());
  out.is_multicast = ethernet[0] & 1;
  out.ether_type = word_at(ethernet + 12);
  for (uint16_t type = ntohs(out.ether_type); type == kTypeVlan || type == kTypeServiceVlan;
       type = ntohs(out.ether_type)) {
    const uint8_t* const tag = reader.next(kVlanTag);
    if (tag == nullptr) return out;
    if (out.has_vlan_tag == 0) out.vlan_tag = word_at(tag);
    out.has_vlan_tag = 1;
    out.ether_type = word_at(tag + 2);
  }
  if (ntohs(out.ether_type) == kTypeIpv4) read_ipv4(reader, &out);
  if (ntohs(out.ether_type) == kTypeIpv6) read_ipv6(reader, &out);
  return out;
}

}  // namespace verbena
