// SPDX-License-Identifier: BSD-2-Clause
//
// Which attributes of ibv_create_flow(3) are a rule, and which fields of a frame it looks at.
#include "engine/rules/flow_specs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "engine/rules/flow_fields.h"

namespace verbena {
namespace {

class FlowBytes {
 public:
  FlowBytes() {
    attr().size = sizeof(ibv_flow_attr);
    attr().port = 1;
  }
  template <typename Spec>
  FlowBytes& add(unsigned type, Spec spec, int size = sizeof(Spec)) {
    const auto kind = static_cast<uint32_t>(type);
    memcpy(&spec, &kind, sizeof kind);
    spec.size = static_cast<uint16_t>(size);
    memcpy(bytes_ + attr().size, &spec, sizeof spec);
    attr().size = static_cast<uint16_t>(attr().size + sizeof spec);
    attr().num_of_specs++;
    return *this;
  }
  ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_); }
  int parse(ParsedFlow* out) {
    const char* why = nullptr;
    const int error = parse_flow(attr(), 1, out, &why);
    EXPECT_EQ(error != 0, why != nullptr);
    return error;
  }

 private:
  alignas(8) uint8_t bytes_[512] = {};
};

struct Refused {
  const char* name;
  int error;
  void (*spoil)(FlowBytes&);
};

class RefusedFlow : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedFlow, IsRefused) {
  FlowBytes flow;
  GetParam().spoil(flow);
  ParsedFlow out;
  EXPECT_EQ(flow.parse(&out), GetParam().error);
}

ibv_flow_spec_ipv4_ext of_protocol(uint8_t protocol) {
  ibv_flow_spec_ipv4_ext spec{};
  spec.val.proto = protocol;
  spec.mask.proto = 0xff;
  return spec;
}

ibv_flow_spec_eth of_type(uint16_t type) {
  ibv_flow_spec_eth spec{};
  spec.val.ether_type = htons(type);
  spec.mask.ether_type = 0xffff;
  return spec;
}

constexpr Refused kRefused[] = {
    {"CompMask", EINVAL, [](FlowBytes& f) { f.attr().comp_mask = 1; }},
    {"FlagThatIsDeprecated", EINVAL, [](FlowBytes& f) { f.attr().flags = 1; }},
    {"Egress", EOPNOTSUPP, [](FlowBytes& f) { f.attr().flags = IBV_FLOW_ATTR_FLAGS_EGRESS; }},
    {"Type", EINVAL, [](FlowBytes& f) { f.attr().type = static_cast<ibv_flow_attr_type>(4); }},
    {"PortZero", EINVAL, [](FlowBytes& f) { f.attr().port = 0; }},
    {"TooManySpecifications", EINVAL,
     [](FlowBytes& f) {
       for (int i = 0; i < 11; ++i) f.add(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{});
     }},
    {"SizeOfASpecification", EINVAL, [](FlowBytes& f) { f.add(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{}, 36); }},
    {"SizeZero", EINVAL, [](FlowBytes& f) { f.add(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{}, 0); }},
    {"UnknownSpecification", EINVAL, [](FlowBytes& f) { f.add(0x21, ibv_flow_spec_eth{}); }},
    {"InnerHeader", EOPNOTSUPP,
     [](FlowBytes& f) { f.add(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, ibv_flow_spec_eth{}); }},
    {"Gre", EOPNOTSUPP, [](FlowBytes& f) { f.add(IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre{}); }},
    {"Tag", EOPNOTSUPP, [](FlowBytes& f) { f.add(IBV_FLOW_SPEC_ACTION_TAG, ibv_flow_spec_action_tag{}); }},
    {"TwoOfALayer", EINVAL,
     [](FlowBytes& f) {
       f.add(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}).add(IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6{});
     }},
    {"FlagsOfIpv4", EOPNOTSUPP,
     [](FlowBytes& f) {
       ibv_flow_spec_ipv4_ext spec{};
       spec.mask.flags = 1;
       f.add(IBV_FLOW_SPEC_IPV4_EXT, spec);
     }},
    {"TcpInUdp", EINVAL,
     [](FlowBytes& f) {
       f.add(IBV_FLOW_SPEC_IPV4_EXT, of_protocol(IPPROTO_UDP))
           .add(IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp{});
     }},
    {"UdpBeforeTcp", EINVAL,
     [](FlowBytes& f) {
       f.add(IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp{})
           .add(IBV_FLOW_SPEC_IPV4_EXT, of_protocol(IPPROTO_UDP));
     }},
    {"Ipv6InAFrameOfIpv4", EINVAL,
     [](FlowBytes& f) {
       f.add(IBV_FLOW_SPEC_ETH, of_type(0x0800)).add(IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6{});
     }},
    {"SnifferThatMatches", EINVAL,
     [](FlowBytes& f) {
       f.attr().type = IBV_FLOW_ATTR_SNIFFER;
       f.add(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{});
     }},
    {"DefaultThatDoesNotTrap", EINVAL,
     [](FlowBytes& f) {
       f.attr().type = IBV_FLOW_ATTR_MC_DEFAULT;
       f.attr().flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
     }},
    {"DropAndPass", EINVAL,
     [](FlowBytes& f) {
       f.attr().flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
       f.add(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{});
     }},
};
INSTANTIATE_TEST_SUITE_P(Each, RefusedFlow, ::testing::ValuesIn(kRefused),
                         [](const auto& row) { return std::string(row.param.name); });

// Whatever the size of the whole says.
TEST(FlowSpecs, AreCountedByTheirNumber) {
  ParsedFlow out;
  for (const int size : {0, int{sizeof(ibv_flow_attr)}, 300}) {
    FlowBytes flow;
    flow.add(IBV_FLOW_SPEC_ETH, of_type(0x0800)).add(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{});
    flow.attr().size = static_cast<uint16_t>(size);
    EXPECT_EQ(flow.parse(&out), 0) << size;
    EXPECT_EQ(out.rule.values.ip_version, 4);
  }
}

TEST(FlowSpecs, AreTakenInAnyOrder) {
  FlowBytes one, two;
  one.add(IBV_FLOW_SPEC_ETH, of_type(0x0800)).add(IBV_FLOW_SPEC_IPV4_EXT, of_protocol(IPPROTO_TCP));
  one.add(IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp{});
  two.add(IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp{}).add(IBV_FLOW_SPEC_IPV4_EXT, of_protocol(IPPROTO_TCP));
  two.add(IBV_FLOW_SPEC_ETH, of_type(0x0800));
  ParsedFlow first, second;
  ASSERT_EQ(one.parse(&first), 0);
  ASSERT_EQ(two.parse(&second), 0);
  EXPECT_EQ(first.rule.values, second.rule.values);
  EXPECT_EQ(first.rule.mask, second.rule.mask);
}

TEST(FlowSpecs, ValuesOutsideTheMaskDoNotCount) {
  ibv_flow_spec_eth spec{};
  memset(spec.val.dst_mac, 0x77, 6);
  spec.mask.dst_mac[0] = 0xf0;
  FlowBytes flow;
  flow.add(IBV_FLOW_SPEC_ETH, spec);
  ParsedFlow out;
  ASSERT_EQ(flow.parse(&out), 0);
  FlowFields frame{};
  frame.destination_mac = {0x7f, 1, 2, 3, 4, 5};
  EXPECT_TRUE(matches(frame, out.rule.values, out.rule.mask));
  frame.destination_mac[0] = 0x6f;
  EXPECT_FALSE(matches(frame, out.rule.values, out.rule.mask));
}

// A frame may end anywhere.
TEST(FlowFields, OfAFrameThatEndsEarly) {
  uint8_t frame[80] = {};
  memset(frame, 0x11, 12);
  const uint8_t headers[] = {0x81, 0x00, 0x20, 0x07, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 9, IPPROTO_TCP};
  memcpy(frame + 12, headers, sizeof headers);
  frame[38] = 0x12;  // the first byte of the ports
  for (uint32_t length = 0; length <= sizeof frame; ++length) {
    const FlowFields fields = fields_of_frame(frame, length);
    EXPECT_EQ(fields.has_vlan_tag, length >= 18) << length;
    EXPECT_EQ(fields.ip_version, length >= 38 ? 4 : 0) << length;
    EXPECT_EQ(fields.source_port, length >= 42 ? htons(0x1200) : 0) << length;
  }
}

TEST(FlowFields, ALaterFragmentHasNoPorts) {
  uint8_t frame[60] = {};
  const uint8_t headers[] = {0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0x00, 0x01, 9, IPPROTO_UDP};
  memcpy(frame + 12, headers, sizeof headers);
  frame[34] = 0x12;
  EXPECT_EQ(fields_of_frame(frame, sizeof frame).source_port, 0);
  frame[21] = 0;
  EXPECT_EQ(fields_of_frame(frame, sizeof frame).source_port, htons(0x1200));
}

}  // namespace
}  // namespace verbena
