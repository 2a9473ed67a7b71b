// SPDX-License-Identifier: BSD-2-Clause
//
// Flow rules: which raw packet QPs get a frame.
#include "flow_fixture.h"

namespace verbena::test {
namespace {

Frame plain(const Mac& to, size_t payload = 50) { return Frame(to, mac(0xf0)).type(0x88b5).payload(payload); }

TEST_F(FlowTest, SteeringIsClaimed) {
  EXPECT_NE(device_.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0u);
}

TEST_F(FlowTest, AFrameArrivesWhereARuleLeads) {
  Port one = make_port(), two = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  ASSERT_NE(flow, nullptr) << strerror(errno);
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  EXPECT_FALSE(arrives(one, plain(mac(2))));
  EXPECT_FALSE(arrives(two, plain(mac(1))));
  EXPECT_EQ(next_status(one.cq.get()), IBV_WC_SUCCESS);
}

TEST_F(FlowTest, FramesOfEachLengthArrive) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  ASSERT_NE(flow, nullptr);
  for (const size_t payload : {0, 1, 46, 74, 75, 100, 242, 243, 1500, 4096})
    EXPECT_TRUE(arrives(one, plain(mac(1), payload))) << payload;
}

TEST_F(FlowTest, TheSenderMayBeTheReceiver) {
  const Flow flow = make_flow(sender_, Rule().to(mac(1)));
  EXPECT_TRUE(arrives(sender_, plain(mac(1))));
}

TEST_F(FlowTest, ACompletionHasNoSource) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  ASSERT_EQ(send(plain(mac(1))), IBV_WC_SUCCESS);
  const ibv_wc wc = next_completion(one.cq.get());
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.src_qp, 0u);
  EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, 0u);
}

TEST_F(FlowTest, InlineAndGatheredFramesArrive) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  EXPECT_EQ(send(plain(mac(1), 20), IBV_SEND_INLINE), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(one.cq.get()).byte_len, 34u);
}

TEST_F(FlowTest, AFrameWithoutAHeaderFails) {
  Frame frame(mac(1), mac(2));
  EXPECT_EQ(send(frame), IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(state_of(sender_.qp.get()), IBV_QPS_SQE);
}

TEST_F(FlowTest, AFrameLongerThanThePortCarriesFails) {
  EXPECT_EQ(send(plain(mac(1), 4096 + 5)), IBV_WC_LOC_LEN_ERR);
}

TEST_F(FlowTest, OnlySendIsAnOperation) {
  ibv_sge sge = sender_.buffer.sge(0, 64);
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    wr.opcode = opcode;
    EXPECT_EQ(ibv_post_send(sender_.qp.get(), &wr, &bad), EINVAL) << opcode;
  }
}

TEST_F(FlowTest, WithoutAReceiveTheFrameIsLost) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  for (uint64_t i = 0; i < kReceives + 3; i++) ASSERT_EQ(send(plain(mac(1))), IBV_WC_SUCCESS);
  for (uint64_t i = 0; i < kReceives; i++) EXPECT_EQ(next_completion(one.cq.get()).wr_id, i);
  EXPECT_TRUE(is_empty(one.cq.get()));
}

TEST_F(FlowTest, TheLowerPriorityValueTakesTheFrame) {
  Port one = make_port(), two = make_port();
  const Flow low = make_flow(one, Rule(IBV_FLOW_ATTR_NORMAL, 5).to(mac(1)));
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  {
    const Flow high = make_flow(two, Rule(IBV_FLOW_ATTR_NORMAL, 4));
    EXPECT_TRUE(arrives(two, plain(mac(1))));
    EXPECT_TRUE(is_empty(one.cq.get()));
  }
  EXPECT_TRUE(arrives(one, plain(mac(1))));
}

TEST_F(FlowTest, OfOnePriorityTheOlderRuleTakesTheFrame) {
  Port one = make_port(), two = make_port();
  const Flow first = make_flow(one, Rule().to(mac(1)));
  const Flow second = make_flow(two, Rule());
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  EXPECT_TRUE(is_empty(two.cq.get()));
  EXPECT_TRUE(arrives(two, plain(mac(9))));
}

TEST_F(FlowTest, EqualRulesShareTheirFrames) {
  Port one = make_port(), two = make_port();
  const Flow first = make_flow(one, Rule().to(kAllMembers));
  const Flow second = make_flow(two, Rule().to(kAllMembers));
  EXPECT_TRUE(arrives(one, plain(kAllMembers)));
  EXPECT_EQ(next_completion(two.cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(FlowTest, ARuleThatDoesNotTrapPassesTheFrameOn) {
  Port one = make_port(), two = make_port(), three = make_port();
  const Flow first = make_flow(one, Rule(IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP).to(mac(1)));
  const Flow second = make_flow(two, Rule(IBV_FLOW_ATTR_NORMAL, 1).to(mac(1)));
  const Flow third = make_flow(three, Rule(IBV_FLOW_ATTR_NORMAL, 2).to(mac(1)));
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  EXPECT_EQ(next_completion(two.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(three.cq.get()));
}

TEST_F(FlowTest, ARuleThatDropsTakesTheFrame) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule(IBV_FLOW_ATTR_NORMAL, 1).to(mac(1)));
  const Flow dropping = make_flow(one, Rule().to(mac(1)).drop());
  EXPECT_FALSE(arrives(one, plain(mac(1))));
}

TEST_F(FlowTest, TheDefaultGetsWhatNoRuleTakes) {
  Port one = make_port(), rest = make_port(), multicast = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  const Flow all = make_flow(rest, Rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  const Flow groups = make_flow(multicast, Rule(IBV_FLOW_ATTR_MC_DEFAULT));
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  EXPECT_TRUE(is_empty(rest.cq.get()));
  EXPECT_TRUE(arrives(rest, plain(mac(2))));
  EXPECT_TRUE(is_empty(multicast.cq.get()));
  EXPECT_TRUE(arrives(multicast, plain(kAllMembers)));
  EXPECT_EQ(next_completion(rest.cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(FlowTest, ASnifferGetsEveryFrame) {
  Port one = make_port(), sniffer = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  const Flow sniffing = make_flow(sniffer, Rule(IBV_FLOW_ATTR_SNIFFER));
  EXPECT_TRUE(arrives(sniffer, plain(mac(1))));
  EXPECT_EQ(next_completion(one.cq.get()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrives(sniffer, plain(mac(7))));
}

TEST_F(FlowTest, ADestroyedRuleGivesNothing) {
  Port one = make_port();
  Flow flow = make_flow(one, Rule().to(mac(1)));
  EXPECT_TRUE(arrives(one, plain(mac(1))));
  flow.reset();
  EXPECT_FALSE(arrives(one, plain(mac(1))));
}

TEST_F(FlowTest, AQueuePairWithAFlowIsBusy) {
  Port one = make_port();
  Flow flow = make_flow(one, Rule().to(mac(1)));
  EXPECT_EQ(ibv_destroy_qp(one.qp.get()), EBUSY);
}

TEST_F(FlowTest, AQueuePairThatDoesNotReceiveGetsNothing) {
  Port one = make_port();
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(one.qp.get(), &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(send(plain(mac(1))), IBV_WC_SUCCESS);
  for (uint64_t i = 0; i < kReceives; i++) EXPECT_EQ(next_status(one.cq.get()), IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(is_empty(one.cq.get()));
}

TEST_F(FlowTest, CountersCountWhatRulesMatch) {
  Port one = make_port();
  ibv_counters_init_attr init = {};
  const Counters counters(ibv_create_counters(context_.get(), &init));
  ASSERT_NE(counters, nullptr) << strerror(errno);
  ibv_counter_attach_attr frames = {}, bytes = {};
  frames.counter_desc = IBV_COUNTER_PACKETS, frames.index = 2;
  bytes.counter_desc = IBV_COUNTER_BYTES, bytes.index = 0;
  ASSERT_EQ(ibv_attach_counters_point_flow(counters.get(), &frames, nullptr), 0);
  ASSERT_EQ(ibv_attach_counters_point_flow(counters.get(), &bytes, nullptr), 0);
  const auto seen = [&] {
    std::array<uint64_t, 3> values = {7, 7, 7};
    EXPECT_EQ(ibv_read_counters(counters.get(), values.data(), values.size(), 0), 0);
    return values;
  };
  {
    const Flow flow = make_flow(one, Rule().to(mac(1)).count(counters.get()));
    const Flow other = make_flow(one, Rule().to(mac(2)).drop().count(counters.get()));
    ASSERT_NE(flow, nullptr) << strerror(errno);
    EXPECT_EQ(seen(), (std::array<uint64_t, 3>{0, 0, 0}));
    EXPECT_TRUE(arrives(one, plain(mac(1), 100)));
    EXPECT_FALSE(arrives(one, plain(mac(3), 100)));
    EXPECT_EQ(seen(), (std::array<uint64_t, 3>{114, 0, 1}));
    EXPECT_FALSE(arrives(one, plain(mac(2), 86)));
    EXPECT_EQ(seen(), (std::array<uint64_t, 3>{214, 0, 2}));
    EXPECT_EQ(ibv_destroy_counters(counters.get()), EBUSY);
    EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &frames, nullptr), EBUSY);
  }
  EXPECT_EQ(seen(), (std::array<uint64_t, 3>{214, 0, 2})) << "of flows that were destroyed";
  uint64_t values[2];
  EXPECT_EQ(ibv_read_counters(counters.get(), values, 2, 0), EINVAL);
}

TEST_F(FlowTest, ACounterPointIsChecked) {
  Port one = make_port();
  ibv_counters_init_attr init = {};
  const Counters counters(ibv_create_counters(context_.get(), &init));
  const Flow flow = make_flow(one, Rule().to(mac(1)));
  ibv_counter_attach_attr point = {};
  EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &point, flow.get()), ENOTSUP);
  point.counter_desc = static_cast<ibv_counter_description>(2);
  EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &point, nullptr), ENOTSUP);
  point = {};
  point.comp_mask = 1;
  EXPECT_EQ(ibv_attach_counters_point_flow(counters.get(), &point, nullptr), EOPNOTSUPP);
}

TEST_F(FlowTest, RefusesWhatTheKernelRefuses) {
  Port one = make_port();
  Rule rule;
  rule.attr().port = 2;
  EXPECT_EQ(refusal(one.qp.get(), rule), EINVAL);
  rule = Rule().add(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{}).add(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth{});
  EXPECT_EQ(refusal(one.qp.get(), rule), EINVAL);
  rule = Rule(IBV_FLOW_ATTR_SNIFFER).to(mac(1));
  EXPECT_EQ(refusal(one.qp.get(), rule), EINVAL);
  rule = Rule(IBV_FLOW_ATTR_ALL_DEFAULT, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
  EXPECT_EQ(refusal(one.qp.get(), rule), EINVAL);
  EXPECT_EQ(refusal(one.qp.get(), Rule(IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_EGRESS)), EOPNOTSUPP);
  const Qp rc = make_qp();
  EXPECT_EQ(refusal(rc.get(), Rule().to(mac(1))), EINVAL);
}

TEST_F(FlowTest, TheDeviceHasRoomForAsManyRulesAsItsProfileSays) {
  Port one = make_port();
  std::vector<Flow> flows;
  for (int i = 0; i < 128; i++) {
    flows.push_back(make_flow(one, Rule().to(mac(static_cast<uint8_t>(i)))));
    ASSERT_NE(flows.back(), nullptr) << i;
  }
  EXPECT_EQ(refusal(one.qp.get(), Rule().to(mac(200))), ENOMEM);
  flows.pop_back();
  EXPECT_EQ(refusal(one.qp.get(), Rule().to(mac(200))), 0);
}

// ---- fields ----

struct Match {
  const char* name;
  Rule rule;
  Frame hit, miss;
};

ibv_flow_spec_eth ethernet() { return {}; }

std::vector<Match> matches() {
  const Frame ip =
      Frame(mac(1), mac(2)).ipv4("10.1.2.3", "10.1.2.4", IPPROTO_UDP, 0x20, 9).ports(5000, 6000).payload(20);
  const Frame tcp =
      Frame(mac(1), mac(2)).ipv4("10.1.2.3", "10.1.2.4", IPPROTO_TCP).ports(5000, 6000).payload(20);
  const Frame ip6 =
      Frame(mac(1), mac(2)).ipv6("fd00::1", "fd00::2", IPPROTO_UDP, 0x12345).ports(5000, 6000).payload(20);
  const Frame other6 =
      Frame(mac(1), mac(2)).ipv6("fd00::1", "fd00::3", IPPROTO_TCP, 0x12346).ports(5000, 6001).payload(20);
  const Frame tagged =
      Frame(mac(1), mac(2)).vlan(0x2007).ipv4("10.1.2.3", "10.1.2.4", IPPROTO_UDP).ports(5000, 6000);
  std::vector<Match> all;
  ibv_flow_spec_eth source = ethernet();
  memcpy(source.val.src_mac, mac(2).data(), 6);
  memset(source.mask.src_mac, 0xff, 6);
  all.push_back({"SourceMac", Rule().add(IBV_FLOW_SPEC_ETH, source), ip,
                 Frame(mac(1), mac(3)).type(0x0800).payload(40)});
  ibv_flow_spec_eth type = ethernet();
  type.val.ether_type = htons(0x86dd), type.mask.ether_type = 0xffff;
  all.push_back({"EtherType", Rule().add(IBV_FLOW_SPEC_ETH, type), ip6, ip});
  ibv_flow_spec_eth vlan = ethernet();
  vlan.val.vlan_tag = htons(7), vlan.mask.vlan_tag = htons(0xfff);
  all.push_back({"VlanId", Rule().add(IBV_FLOW_SPEC_ETH, vlan), tagged,
                 Frame(mac(1), mac(2)).vlan(0x2008).type(0x88b5).payload(40)});
  ibv_flow_spec_eth vlan0 = ethernet();
  vlan0.mask.vlan_tag = htons(0xfff);
  all.push_back({"AnyVlanTagIsATag", Rule().add(IBV_FLOW_SPEC_ETH, vlan0),
                 Frame(mac(1), mac(2)).vlan(0).type(0x88b5).payload(40), ip});
  ibv_flow_spec_eth inner = ethernet();
  inner.val.ether_type = htons(0x0800), inner.mask.ether_type = 0xffff;
  all.push_back({"EtherTypeBehindTheVlanTag", Rule().add(IBV_FLOW_SPEC_ETH, inner), tagged, ip6});
  ibv_flow_spec_ipv4 four = {};
  four.val.dst_ip = inet_addr("10.1.2.4"), four.mask.dst_ip = ~0u;
  all.push_back({"Ipv4Destination", Rule().add(IBV_FLOW_SPEC_IPV4, four), ip,
                 Frame(mac(1), mac(2)).ipv4("10.1.2.3", "10.1.2.5", 17).payload(20)});
  ibv_flow_spec_ipv4 net = {};
  net.val.src_ip = inet_addr("10.1.255.255"), net.mask.src_ip = inet_addr("255.255.0.0");
  all.push_back({"Ipv4Network", Rule().add(IBV_FLOW_SPEC_IPV4, net), ip,
                 Frame(mac(1), mac(2)).ipv4("10.2.2.3", "10.1.2.4", 17).payload(20)});
  all.push_back({"AnyIpv4", Rule().add(IBV_FLOW_SPEC_IPV4, ibv_flow_spec_ipv4{}), ip, ip6});
  ibv_flow_spec_ipv4_ext ext = {};
  ext.val.tos = 0x20, ext.mask.tos = 0xff, ext.val.ttl = 9, ext.mask.ttl = 0xff;
  all.push_back({"Ipv4TosAndTtl", Rule().add(IBV_FLOW_SPEC_IPV4_EXT, ext), ip, tcp});
  ibv_flow_spec_ipv4_ext proto = {};
  proto.val.proto = IPPROTO_TCP, proto.mask.proto = 0xff;
  all.push_back({"Ipv4Protocol", Rule().add(IBV_FLOW_SPEC_IPV4_EXT, proto), tcp, ip});
  ibv_flow_spec_ipv6 six = {};
  inet_pton(AF_INET6, "fd00::2", six.val.dst_ip);
  memset(six.mask.dst_ip, 0xff, 16);
  all.push_back({"Ipv6Destination", Rule().add(IBV_FLOW_SPEC_IPV6, six), ip6, other6});
  ibv_flow_spec_ipv6 label = {};
  label.val.flow_label = htonl(0x12345), label.mask.flow_label = htonl(0xfffff);
  all.push_back({"Ipv6FlowLabel", Rule().add(IBV_FLOW_SPEC_IPV6, label), ip6, other6});
  ibv_flow_spec_ipv6 next = {};
  next.val.next_hdr = IPPROTO_UDP, next.mask.next_hdr = 0xff;
  all.push_back({"Ipv6NextHeader", Rule().add(IBV_FLOW_SPEC_IPV6, next), ip6, other6});
  ibv_flow_spec_tcp_udp port = {};
  port.val.dst_port = htons(6000), port.mask.dst_port = 0xffff;
  all.push_back({"UdpPort", Rule().add(IBV_FLOW_SPEC_UDP, port), ip, tcp});
  all.push_back({"UdpPortOverIpv6", Rule().add(IBV_FLOW_SPEC_UDP, port), ip6, other6});
  ibv_flow_spec_tcp_udp from = {};
  from.val.src_port = htons(5000), from.mask.src_port = 0xffff;
  all.push_back(
      {"TcpSourcePort", Rule().add(IBV_FLOW_SPEC_IPV4, four).add(IBV_FLOW_SPEC_TCP, from), tcp, ip});
  return all;
}

TEST_F(FlowTest, EachFieldIsMatched) {
  Port one = make_port();
  for (const Match& match : matches()) {
    SCOPED_TRACE(match.name);
    const Flow flow = make_flow(one, match.rule);
    ASSERT_NE(flow, nullptr) << strerror(errno);
    EXPECT_TRUE(arrives(one, match.hit));
    EXPECT_FALSE(arrives(one, match.miss));
  }
}

}  // namespace
}  // namespace verbena::test
