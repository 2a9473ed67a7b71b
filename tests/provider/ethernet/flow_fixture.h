// SPDX-License-Identifier: BSD-2-Clause
//
// Raw packet QPs, Ethernet frames and flow rules (ibv_create_flow(3)).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fixture.h"

namespace verbena::test {

using Flow = std::unique_ptr<ibv_flow, Destroyer<ibv_destroy_flow>>;
using Counters = std::unique_ptr<ibv_counters, Destroyer<ibv_destroy_counters>>;

// A locally administered address; `last` tells it from the others.
using Mac = std::array<uint8_t, 6>;
inline Mac mac(uint8_t last) { return {0x02, 0x5e, 0xc0, 0x4f, 0x0e, last}; }
inline constexpr Mac kAllMembers = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};

// An Ethernet frame, layer by layer.
class Frame {
 public:
  Frame(const Mac& to, const Mac& from) {
    bytes.insert(bytes.end(), to.begin(), to.end());
    bytes.insert(bytes.end(), from.begin(), from.end());
  }
  Frame& vlan(uint16_t tag) { return word(0x8100).word(tag); }
  Frame& type(uint16_t ether_type) { return word(ether_type); }
  Frame& ipv4(const char* from, const char* to, uint8_t protocol, uint8_t tos = 0, uint8_t ttl = 64) {
    word(0x0800);
    const uint8_t header[] = {0x45, tos, 0, 60, 0, 0, 0x40, 0, ttl, protocol, 0, 0};
    bytes.insert(bytes.end(), header, header + sizeof header);
    return address(AF_INET, from, 4).address(AF_INET, to, 4);
  }
  Frame& ipv6(const char* from, const char* to, uint8_t next, uint32_t flow = 0) {
    word(0x86dd);
    const uint8_t header[] = {0x60,
                              static_cast<uint8_t>(flow >> 16 & 15),
                              static_cast<uint8_t>(flow >> 8),
                              static_cast<uint8_t>(flow),
                              0,
                              20,
                              next,
                              64};
    bytes.insert(bytes.end(), header, header + sizeof header);
    return address(AF_INET6, from, 16).address(AF_INET6, to, 16);
  }
  Frame& ports(uint16_t from, uint16_t to) { return word(from).word(to); }
  Frame& payload(size_t size, uint8_t first = 1) {
    for (size_t i = 0; i < size; i++) bytes.push_back(static_cast<uint8_t>(first + i * 5));
    return *this;
  }

  std::vector<uint8_t> bytes;

 private:
  Frame& word(uint16_t value) {
    bytes.push_back(static_cast<uint8_t>(value >> 8));
    bytes.push_back(static_cast<uint8_t>(value));
    return *this;
  }
  Frame& address(int family, const char* text, size_t size) {
    uint8_t raw[16];
    EXPECT_EQ(inet_pton(family, text, raw), 1) << text;
    bytes.insert(bytes.end(), raw, raw + size);
    return *this;
  }
};

// The attributes of a rule, with its specifications behind them.
class Rule {
 public:
  explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, uint16_t priority = 0, uint32_t flags = 0) {
    attr().type = type;
    attr().size = sizeof(ibv_flow_attr);
    attr().priority = priority;
    attr().port = kPort;
    attr().flags = flags;
  }
  template <typename Spec>
  Rule& add(ibv_flow_spec_type type, Spec spec) {
    spec.type = type;
    spec.size = sizeof spec;
    memcpy(bytes_ + attr().size, &spec, sizeof spec);
    attr().size = static_cast<uint16_t>(attr().size + sizeof spec);
    attr().num_of_specs++;
    return *this;
  }
  Rule& to(const Mac& destination) {
    ibv_flow_spec_eth spec = {};
    memcpy(spec.val.dst_mac, destination.data(), 6);
    memset(spec.mask.dst_mac, 0xff, 6);
    return add(IBV_FLOW_SPEC_ETH, spec);
  }
  Rule& drop() { return add(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{}); }
  Rule& count(ibv_counters* counters) {
    ibv_flow_spec_counter_action spec = {};
    spec.counters = counters;
    return add(IBV_FLOW_SPEC_ACTION_COUNT, spec);
  }
  ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_); }

 private:
  alignas(8) uint8_t bytes_[512] = {};
};

class FlowTest : public CqTest {
 protected:
  static constexpr size_t kSlot = 8192;
  static constexpr uint64_t kReceives = 8;

  // A raw packet QP that receives into its own CQ and buffer.
  struct Port {
    Cq cq;
    Qp qp;
    Buffer buffer;
    uint64_t next = 0;  // the request that the next frame uses
  };

  void SetUp() override {
    CqTest::SetUp();
    if (HasFatalFailure()) return;
    sender_ = make_port();
    ASSERT_NE(sender_.qp, nullptr) << strerror(errno);
  }

  Qp make_raw(ibv_cq* send_cq, ibv_cq* recv_cq) {
    ibv_qp_init_attr init = qp_init(send_cq, recv_cq);
    init.qp_type = IBV_QPT_RAW_PACKET;
    Qp qp(ibv_create_qp(pd_.get(), &init));
    if (qp == nullptr) return qp;
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = kPort;
    EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
    for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
      attr.qp_state = state;
      EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
    }
    return qp;
  }
  Port make_port() {
    Port port;
    port.cq = make_cq(64);
    port.qp = make_raw(cq_.get(), port.cq.get());
    port.buffer = Buffer(pd_.get(), kSlot * (kReceives + 1));
    if (port.qp != nullptr)
      for (uint64_t i = 0; i < kReceives; i++) post(port, i);
    return port;
  }
  void post(Port& port, uint64_t id, uint32_t length = kSlot) {
    ibv_sge sge = port.buffer.sge(id % kReceives * kSlot, length);
    ibv_recv_wr wr = {.wr_id = id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(port.qp.get(), &wr, &bad), 0);
  }

  ibv_wc_status send(const Frame& frame, unsigned flags = 0) {
    memcpy(sender_.buffer.data() + kSlot * kReceives, frame.bytes.data(), frame.bytes.size());
    ibv_sge sge = sender_.buffer.sge(kSlot * kReceives, frame.bytes.size());
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED | flags;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(sender_.qp.get(), &wr, &bad), 0);
    return next_completion(cq_.get()).status;
  }

  Flow make_flow(Port& port, Rule rule) { return Flow(ibv_create_flow(port.qp.get(), &rule.attr())); }
  // The errno of a refusal; 0: there was none.
  int refusal(ibv_qp* qp, Rule rule) {
    errno = 0;
    const Flow flow(ibv_create_flow(qp, &rule.attr()));
    return flow == nullptr ? errno : 0;
  }

  // Sends the frame; did it arrive at `port`, whole and once?
  bool arrives(Port& port, const Frame& frame) {
    EXPECT_EQ(send(frame), IBV_WC_SUCCESS);
    ibv_wc wc = {};
    if (ibv_poll_cq(port.cq.get(), 1, &wc) == 0) return false;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, port.next);
    EXPECT_EQ(wc.byte_len, frame.bytes.size());
    EXPECT_EQ(wc.qp_num, port.qp->qp_num);
    EXPECT_EQ(
        memcmp(port.buffer.data() + port.next % kReceives * kSlot, frame.bytes.data(), frame.bytes.size()),
        0);
    EXPECT_TRUE(is_empty(port.cq.get())) << "a second copy";
    port.next++;
    post(port, port.next + kReceives - 1);
    return true;
  }

  Port sender_;
};

}  // namespace verbena::test
