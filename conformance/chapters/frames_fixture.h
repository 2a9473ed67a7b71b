// SPDX-License-Identifier: BSD-2-Clause
//
// Fixture for tests with raw packet QPs: they send Ethernet frames, and rules steer what comes back.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/objects.h"

namespace conformance {

// Locally administered addresses that no machine has, and no other test at the same time. The type of the
// frames is one for experiments (IEEE 802).
using Mac = std::array<uint8_t, 6>;
inline Mac mac(uint8_t last) {
  const auto process = static_cast<unsigned>(getpid());
  return {0x02,
          0x5e,
          static_cast<uint8_t>(process >> 16),
          static_cast<uint8_t>(process >> 8),
          static_cast<uint8_t>(process),
          last};
}
inline constexpr uint8_t frame_type[] = {0x88, 0xb5};
inline constexpr size_t frame_size = 64;

struct EndFlow {
  void operator()(ibv_flow* flow) const { ibv_destroy_flow(flow); }
};
struct EndCounters {
  void operator()(ibv_counters* counters) const { ibv_destroy_counters(counters); }
};
using Flow = std::unique_ptr<ibv_flow, EndFlow>;
using Counters = std::unique_ptr<ibv_counters, EndCounters>;

class FramesTest : public DeviceTest {
 protected:
  // A raw packet QP in RTS with 4 receive requests.
  struct Receiver {
    Buffer buffer{4 * 2048};
    Cq cq;
    Mr mr;
    Qp qp;
  };

  void need_frames() {
    // A device of both link layers claims rules for either.
    if (!device().is_ethernet()) throw NotClaimed{"the port's link layer is not Ethernet"};
    if ((device().attributes().device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING) == 0)
      throw NotClaimed{"IBV_DEVICE_MANAGED_FLOW_STEERING is not set"};
    pd_ = make_pd(device());
    send_cq_ = make_cq(device());
    sender_ = std::make_unique<Receiver>();
    fill(*sender_);
  }

  std::unique_ptr<Receiver> receiver() {
    auto made = std::make_unique<Receiver>();
    fill(*made);
    for (size_t i = 0; i < 4; ++i) receive(*made, i);
    return made;
  }
  static void receive(Receiver& at, uint64_t id) {
    ibv_sge sge = {at.buffer.address(id * 2048), 2048, at.mr->lkey};
    ibv_recv_wr wr = {id, nullptr, &sge, 1}, *bad = nullptr;
    EXPECT_SUCCEEDS(ibv_post_recv(at.qp, &wr, &bad));
  }

  void send(const Mac& to) {
    std::vector<uint8_t> frame(frame_size, 0x5a);
    memcpy(frame.data(), to.data(), 6);
    memcpy(frame.data() + 6, mac(0xff).data(), 6);
    memcpy(frame.data() + 12, frame_type, 2);
    send(frame);
  }
  // At most 2,048 bytes. `flags`: besides IBV_SEND_SIGNALED.
  void send(const std::vector<uint8_t>& frame, unsigned flags = 0) {
    memcpy(sender_->buffer.data(), frame.data(), frame.size());
    ibv_sge sge = {sender_->buffer.address(0), static_cast<uint32_t>(frame.size()), sender_->mr->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED | flags;
    ASSERT_SUCCEEDS(ibv_post_send(sender_->qp, &wr, &bad));
    EXPECT_EQ(completion(send_cq_).status, IBV_WC_SUCCESS);
  }

  // The next frame and the flags of its completion; another receive request takes its place. Nothing: none
  // comes.
  struct Arrival {
    std::vector<uint8_t> bytes;
    unsigned flags;
  };
  static std::optional<Arrival> arrival(Receiver& at) {
    ibv_wc wc = {};
    const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::milliseconds(50));
    while (ibv_poll_cq(at.cq, 1, &wc) == 0)
      if (std::chrono::steady_clock::now() > end) return std::nullopt;
    if (wc.status != IBV_WC_SUCCESS)
      throw Deviation{"a frame is received with " + wc_text(wc), Where::current()};
    const uint8_t* const bytes = at.buffer.data() + wc.wr_id * 2048;
    Arrival out{{bytes, bytes + std::min(wc.byte_len, 2048u)}, wc.wc_flags};
    receive(at, wc.wr_id);
    return out;
  }

  // The last byte of the destination of the next frame; 0: none comes.
  static uint8_t next(Receiver& at) {
    ibv_wc wc = {};
    const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::milliseconds(50));
    while (ibv_poll_cq(at.cq, 1, &wc) == 0)
      if (std::chrono::steady_clock::now() > end) return 0;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    EXPECT_EQ(wc.byte_len, frame_size);
    return at.buffer[wc.wr_id * 2048 + 5];
  }

  Flow rule(Receiver& to, ibv_flow_attr_type type, const Mac* destination, uint16_t priority = 0,
            ibv_counters* counters = nullptr) {
    ibv_flow_attr attr = {};
    attr.type = type;
    attr.priority = priority;
    attr.port = device().port_number();
    // The specifications follow one another without gaps.
    alignas(8) uint8_t bytes[128] = {};
    size_t size = sizeof attr;
    const auto add = [&](auto spec, ibv_flow_spec_type of) {
      spec.type = of;
      spec.size = sizeof spec;
      memcpy(bytes + size, &spec, sizeof spec);
      size += sizeof spec;
      ++attr.num_of_specs;
    };
    if (destination != nullptr) {
      ibv_flow_spec_eth ethernet = {};
      memcpy(ethernet.val.dst_mac, destination->data(), 6);
      memset(ethernet.mask.dst_mac, 0xff, 6);
      add(ethernet, IBV_FLOW_SPEC_ETH);
    }
    if (counters != nullptr) {
      ibv_flow_spec_counter_action count = {};
      count.counters = counters;
      add(count, IBV_FLOW_SPEC_ACTION_COUNT);
    }
    attr.size = static_cast<uint16_t>(size);
    memcpy(bytes, &attr, sizeof attr);
    Flow flow(CALL(ibv_create_flow(to.qp, reinterpret_cast<ibv_flow_attr*>(bytes))));
    if (!flow && errno == EPERM) throw NotTested{"rules for flows need a right that this user does not have"};
    if (!flow) throw Deviation{"expected: a flow; seen: null, " + errno_text(errno), Where::current()};
    return flow;
  }
  Flow rule(Receiver& to, const Mac& destination, uint16_t priority = 0, ibv_counters* counters = nullptr) {
    return rule(to, IBV_FLOW_ATTR_NORMAL, &destination, priority, counters);
  }

  // Do frames come back at all?
  void need_return() {
    const auto probe = receiver();
    const Flow flow = rule(*probe, mac(0x99));
    send(mac(0x99));
    if (next(*probe) == 0) throw NotTested{"no frame of the device comes back to it"};
  }

 private:
  void fill(Receiver& out) {
    out.cq = make_cq(device());
    out.mr = make_mr(pd_, out.buffer);
    QpSpec spec;
    spec.type = IBV_QPT_RAW_PACKET;
    ibv_qp_init_attr attr = init_attributes(within_limits(context(), spec), send_cq_, out.cq);
    out.qp = Qp(CALL(ibv_create_qp(pd_, &attr)));
    if (out.qp == nullptr && errno == EPERM)
      throw NotTested{"raw packets need a right that this user does not have"};
    // No capability says whether there are raw packet QPs: rules may be for UD QPs only.
    if (out.qp == nullptr && is_refusal(errno))
      throw NotClaimed{"raw packet QPs refused with " + errno_text(errno)};
    if (out.qp == nullptr)
      throw Deviation{"expected: a raw packet QP; seen: null, " + errno_text(errno), Where::current()};
    ibv_qp_attr state = {};
    state.port_num = device().port_number();
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      state.qp_state = to;
      EXPECT_SUCCEEDS(ibv_modify_qp(out.qp, &state, IBV_QP_STATE | (to == IBV_QPS_INIT ? IBV_QP_PORT : 0)));
    }
  }

  Pd pd_;
  Cq send_cq_;
  std::unique_ptr<Receiver> sender_;
};

}  // namespace conformance
