// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/flow_specs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/rules/program_enum.h"

namespace verbena {
namespace {

constexpr uint32_t kMostSpecs = 10;  // IB_FLOW_SPEC_SUPPORT_LAYERS of <rdma/ib_verbs.h>
constexpr uint32_t kKnownFlags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
constexpr uint16_t kIpv4Type = 0x0800, kIpv6Type = 0x86dd;

int refuse_flow(int error, const char* reason, const char** why) {
  *why = reason;
  return error;
}

// What has been demanded of each layer so far.
struct Layers {
  bool ethernet = false, network = false, transport = false;
};

struct SpecParser {
  FlowFields& values;
  FlowFields& mask;
  ParsedFlow& out;
  Layers layers;
  const char** why;

  template <typename Field>
  void demand(Field FlowFields::*field, Field value, Field bits) {
    values.*field = static_cast<Field>(value & bits);
    mask.*field = bits;
  }
  template <size_t size>
  void demand(std::array<uint8_t, size> FlowFields::*field, const uint8_t* value, const uint8_t* bits,
              size_t count = size) {
    for (size_t i = 0; i < count; ++i) {
      (values.*field)[i] = value[i] & bits[i];
      (mask.*field)[i] = bits[i];
    }
  }
  // Demanded already, and not the same?
  template <typename Field>
  bool contradicts(Field FlowFields::*field, Field value) const {
    return ((values.*field ^ value) & mask.*field) != 0;
  }
  bool is_second(bool& layer) const { return std::exchange(layer, true); }

  int add(const ibv_flow_spec_eth& spec) {
    if (is_second(layers.ethernet))
      return refuse_flow(EINVAL, "two specifications of the Ethernet header", why);
    demand(&FlowFields::destination_mac, spec.val.dst_mac, spec.mask.dst_mac);
    demand(&FlowFields::source_mac, spec.val.src_mac, spec.mask.src_mac);
    if (spec.mask.vlan_tag != 0) {
      demand(&FlowFields::vlan_tag, spec.val.vlan_tag, spec.mask.vlan_tag);
      demand<uint8_t>(&FlowFields::has_vlan_tag, 1, 1);
    }
    if (spec.mask.ether_type != 0) demand(&FlowFields::ether_type, spec.val.ether_type, spec.mask.ether_type);
    return 0;
  }

  int network(uint8_t version, uint8_t next_protocol, uint8_t next_mask) {
    if (is_second(layers.network)) return refuse_flow(EINVAL, "two specifications of the IP header", why);
    demand<uint8_t>(&FlowFields::ip_version, version, 0xff);
    if (next_mask == 0) return 0;
    if (layers.transport && ((values.protocol ^ next_protocol) & next_mask) != 0)
      return refuse_flow(EINVAL, "the IP header names another protocol than the TCP or UDP specification",
                         why);
    if (!layers.transport) demand(&FlowFields::protocol, next_protocol, next_mask);
    return 0;
  }

  int add(const ibv_flow_ipv4_ext_filter& value, const ibv_flow_ipv4_ext_filter& bits) {
    if (bits.flags != 0) return refuse_flow(EOPNOTSUPP, "the flags of IPv4 are not matched", why);
    if (int error = network(4, value.proto, bits.proto); error != 0) return error;
    const auto bytes = [](const uint32_t& word) { return reinterpret_cast<const uint8_t*>(&word); };
    demand(&FlowFields::source_ip, bytes(value.src_ip), bytes(bits.src_ip), 4);
    demand(&FlowFields::destination_ip, bytes(value.dst_ip), bytes(bits.dst_ip), 4);
    demand(&FlowFields::traffic_class, value.tos, bits.tos);
    demand(&FlowFields::hop_limit, value.ttl, bits.ttl);
    return 0;
  }

  int add(const ibv_flow_spec_ipv6& spec) {
    if (int error = network(6, spec.val.next_hdr, spec.mask.next_hdr); error != 0) return error;
    demand(&FlowFields::source_ip, spec.val.src_ip, spec.mask.src_ip);
    demand(&FlowFields::destination_ip, spec.val.dst_ip, spec.mask.dst_ip);
    demand(&FlowFields::flow_label, spec.val.flow_label, spec.mask.flow_label & htonl(0xfffff));
    demand(&FlowFields::traffic_class, spec.val.traffic_class, spec.mask.traffic_class);
    demand(&FlowFields::hop_limit, spec.val.hop_limit, spec.mask.hop_limit);
    return 0;
  }

  int add(const ibv_flow_spec_tcp_udp& spec, uint8_t protocol) {
    if (is_second(layers.transport)) return refuse_flow(EINVAL, "two specifications of TCP and UDP", why);
    if (contradicts(&FlowFields::protocol, protocol))
      return refuse_flow(EINVAL, "the IP header names another protocol than the TCP or UDP specification",
                         why);
    demand<uint8_t>(&FlowFields::protocol, protocol, 0xff);
    demand(&FlowFields::destination_port, spec.val.dst_port, spec.mask.dst_port);
    demand(&FlowFields::source_port, spec.val.src_port, spec.mask.src_port);
    return 0;
  }

  // The Ethernet header and the IP header name the same protocol.
  int check_layers() const {
    if (!layers.network) return 0;
    const uint16_t type = htons(values.ip_version == 4 ? kIpv4Type : kIpv6Type);
    if (contradicts(&FlowFields::ether_type, type))
      return refuse_flow(EINVAL, "the Ethernet header names another protocol than the IP specification", why);
    return 0;
  }
};

// The specification at `at`, as a copy: it may be misaligned (packed structures).
template <typename Spec>
bool read_spec(const uint8_t* at, uint16_t size, Spec* out) {
  if (size != sizeof(Spec)) return false;
  std::memcpy(out, at, sizeof(Spec));
  return true;
}

int parse_spec(SpecParser& parser, unsigned type, const uint8_t* at, uint16_t size) {
  const auto wrong_size = [&] {
    return refuse_flow(EINVAL, "a specification whose size is not that of its type", parser.why);
  };
  ibv_flow_spec spec;
  switch (type) {
    case IBV_FLOW_SPEC_ETH:
      return read_spec(at, size, &spec.eth) ? parser.add(spec.eth) : wrong_size();
    case IBV_FLOW_SPEC_IPV4: {
      if (!read_spec(at, size, &spec.ipv4)) return wrong_size();
      ibv_flow_ipv4_ext_filter value{}, mask{};
      value.src_ip = spec.ipv4.val.src_ip, value.dst_ip = spec.ipv4.val.dst_ip;
      mask.src_ip = spec.ipv4.mask.src_ip, mask.dst_ip = spec.ipv4.mask.dst_ip;
      return parser.add(value, mask);
    }
    case IBV_FLOW_SPEC_IPV4_EXT:
      return read_spec(at, size, &spec.ipv4_ext) ? parser.add(spec.ipv4_ext.val, spec.ipv4_ext.mask)
                                                 : wrong_size();
    case IBV_FLOW_SPEC_IPV6:
      return read_spec(at, size, &spec.ipv6) ? parser.add(spec.ipv6) : wrong_size();
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      if (!read_spec(at, size, &spec.tcp_udp)) return wrong_size();
      return parser.add(spec.tcp_udp, type == IBV_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP);
    case IBV_FLOW_SPEC_ACTION_DROP:
      if (!read_spec(at, size, &spec.drop)) return wrong_size();
      parser.out.rule.drops = true;
      return 0;
    case IBV_FLOW_SPEC_ACTION_COUNT:
      if (!read_spec(at, size, &spec.flow_count) || spec.flow_count.counters == nullptr) return wrong_size();
      if (parser.out.counters != nullptr)
        return refuse_flow(EINVAL, "two ACTION_COUNT, and a flow has one counters object", parser.why);
      parser.out.counters = spec.flow_count.counters;
      return 0;
    case IBV_FLOW_SPEC_ESP:
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
    case IBV_FLOW_SPEC_GRE:
    case IBV_FLOW_SPEC_MPLS:
    case IBV_FLOW_SPEC_ACTION_TAG:
    case IBV_FLOW_SPEC_ACTION_HANDLE:
      return refuse_flow(EOPNOTSUPP, "a specification that the device does not have", parser.why);
    default:
      return (type & IBV_FLOW_SPEC_INNER) != 0
                 ? refuse_flow(EOPNOTSUPP, "the device does not look into tunnels", parser.why)
                 : refuse_flow(EINVAL, "no such type of specification", parser.why);
  }
}

int parse_specs(SpecParser& parser, const ibv_flow_attr& attr) {
  const auto* at = reinterpret_cast<const uint8_t*>(&attr) + sizeof attr;
  struct {
    uint32_t type;
    uint16_t size;
  } head;
  constexpr size_t kHead = offsetof(ibv_flow_spec_eth, size) + sizeof(uint16_t);
  for (uint32_t i = 0; i < attr.num_of_specs; ++i) {
    std::memcpy(&head, at, kHead);
    if (int error = parse_spec(parser, head.type, at, head.size); error != 0) return error;
    at += head.size;
  }
  return parser.check_layers();
}

}  // namespace

int parse_flow(const ibv_flow_attr& attr, uint32_t ports, ParsedFlow* out, const char** why) noexcept {
  *out = {};
  const unsigned type = number_in(attr.type);
  if (attr.comp_mask != 0) return refuse_flow(EINVAL, "comp_mask is 0", why);
  if ((attr.flags & ~kKnownFlags) != 0) return refuse_flow(EINVAL, "there are no such flags", why);
  if (type > IBV_FLOW_ATTR_SNIFFER) return refuse_flow(EINVAL, "there is no such type of rule", why);
  if (attr.port < 1 || attr.port > ports) return refuse_flow(EINVAL, "the device has no such port", why);
  if ((attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0)
    return refuse_flow(EOPNOTSUPP, "the device has no rules for what it sends", why);
  const bool passes = (attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0;
  if (type != IBV_FLOW_ATTR_NORMAL && (passes || attr.num_of_specs != 0))
    return refuse_flow(EINVAL, "only normal rules have specifications, and DONT_TRAP", why);
  if (attr.num_of_specs > kMostSpecs) return refuse_flow(EINVAL, "a rule has at most 10 specifications", why);
  FlowRule& rule = out->rule;
  rule.kind = static_cast<FlowKind>(type);
  rule.priority = attr.priority;
  rule.passes = passes;
  SpecParser parser{rule.values, rule.mask, *out, {}, why};
  if (int error = parse_specs(parser, attr); error != 0) return error;
  if (rule.drops && rule.passes) return refuse_flow(EINVAL, "a rule that drops does not pass frames on", why);
  if (rule.kind == FlowKind::kMulticastDefault) rule.values.is_multicast = rule.mask.is_multicast = 1;
  return 0;
}

}  // namespace verbena
