// SPDX-License-Identifier: BSD-2-Clause
//
// Ethernet frames between raw packet QPs of the device, and the rules that steer them. The frames come back
// where the device, or what is at the other end of its cable, returns them. Where none does, the tests cannot
// tell.
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/objects.h"

namespace conformance {
namespace {

// Locally administered addresses that no machine has, and no other test at the same time. The type of the
// frames is one for experiments (IEEE 802).
using Mac = std::array<uint8_t, 6>;
Mac mac(uint8_t last) {
  const auto process = static_cast<unsigned>(getpid());
  return {0x02,
          0x5e,
          static_cast<uint8_t>(process >> 16),
          static_cast<uint8_t>(process >> 8),
          static_cast<uint8_t>(process),
          last};
}
constexpr uint8_t frame_type[] = {0x88, 0xb5};
constexpr size_t frame_size = 64;

struct EndFlow {
  void operator()(ibv_flow* flow) const { ibv_destroy_flow(flow); }
};
struct EndCounters {
  void operator()(ibv_counters* counters) const { ibv_destroy_counters(counters); }
};
using Flow = std::unique_ptr<ibv_flow, EndFlow>;
using Counters = std::unique_ptr<ibv_counters, EndCounters>;

class Fixture : public DeviceTest {
 protected:
  // A raw packet QP in RTS with 4 receive requests.
  struct Receiver {
    Buffer buffer{4 * 2048};
    Cq cq;
    Mr mr;
    Qp qp;
  };

  void need_frames() {
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
    for (size_t i = 0; i < 4; ++i) {
      ibv_sge sge = {made->buffer.address(i * 2048), 2048, made->mr->lkey};
      ibv_recv_wr wr = {i, nullptr, &sge, 1}, *bad = nullptr;
      EXPECT_SUCCEEDS(ibv_post_recv(made->qp, &wr, &bad));
    }
    return made;
  }

  void send(const Mac& to) {
    uint8_t* const frame = sender_->buffer.data();
    memset(frame, 0x5a, frame_size);
    memcpy(frame, to.data(), 6);
    memcpy(frame + 6, mac(0xff).data(), 6);
    memcpy(frame + 12, frame_type, 2);
    ibv_sge sge = {sender_->buffer.address(0), frame_size, sender_->mr->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_SUCCEEDS(ibv_post_send(sender_->qp, &wr, &bad));
    EXPECT_EQ(completion(send_cq_).status, IBV_WC_SUCCESS);
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

CONFORMANCE_TEST(offload, FramesFollowTheirRule, "ibv_create_flow.steers", "ibv_destroy_flow.ends") {
  need_frames();
  const auto one = receiver(), two = receiver();
  Flow first = rule(*one, mac(1));
  const Flow second = rule(*two, mac(2));
  for (const uint8_t to : {1, 2, 3}) send(mac(to));
  const uint8_t at_one = next(*one), at_two = next(*two);
  if (at_one == 0 && at_two == 0) throw NotTested{"no frame of the device comes back to it"};
  EXPECT_EQ(at_one, 1);
  EXPECT_EQ(at_two, 2);
  EXPECT_EQ(next(*one), 0);
  EXPECT_EQ(next(*two), 0);
  const About about("ibv_destroy_flow.ends");
  ASSERT_SUCCEEDS(ibv_destroy_flow(first.release()));
  send(mac(1));
  EXPECT_EQ(next(*one), 0);
}

CONFORMANCE_TEST(offload, LowerValuesComeFirst, "ibv_create_flow.priority") {
  need_frames();
  need_return();
  const auto one = receiver(), two = receiver();
  const Flow later = rule(*one, mac(1), 1);
  const Flow sooner = rule(*two, mac(1), 0);
  send(mac(1));
  EXPECT_EQ(next(*two), 1);
  EXPECT_EQ(next(*one), 0);
}

// Alone: the frames of other tests would come here as well.
CONFORMANCE_TEST_AS(Traits().alone(), offload, TheDefaultReceivesTheRest, "ibv_create_flow.default") {
  need_frames();
  need_return();
  const auto one = receiver(), rest = receiver();
  const Flow flow = rule(*one, mac(1));
  const Flow all = rule(*rest, IBV_FLOW_ATTR_ALL_DEFAULT, nullptr);
  send(mac(1));
  send(mac(2));
  EXPECT_EQ(next(*one), 1);
  EXPECT_EQ(next(*one), 0);
  // Other programs may send frames, too.
  uint8_t seen = next(*rest);
  while (seen != 0 && seen != 2) seen = next(*rest);
  EXPECT_EQ(seen, 2);
}

CONFORMANCE_TEST(offload, ARuleKeepsItsQp, "ibv_destroy_qp.flow") {
  need_frames();
  const auto one = receiver();
  const Flow flow = rule(*one, mac(1));
  EXPECT_REFUSED_WITH((EBUSY), ibv_destroy_qp(one->qp));
}

CONFORMANCE_TEST(offload, CountersCountWhatMatches, "ibv_read_counters.counts",
                 "ibv_attach_counters_point_flow.bound") {
  need_frames();
  ibv_counters_init_attr init = {};
  Counters counters(CALL(ibv_create_counters(context(), &init)));
  if (!counters) throw NotClaimed{"ibv_create_counters refused with " + errno_text(errno)};
  ibv_counter_attach_attr point = {};
  point.counter_desc = IBV_COUNTER_PACKETS;
  if (CALL(ibv_attach_counters_point_flow(counters.get(), &point, nullptr)) == ENOTSUP)
    throw NotClaimed{"packets are not counted"};
  point.counter_desc = IBV_COUNTER_BYTES;
  point.index = 1;
  const bool has_bytes = CALL(ibv_attach_counters_point_flow(counters.get(), &point, nullptr)) == 0;
  const auto one = receiver();
  const Flow flow = rule(*one, mac(1), 0, counters.get());
  {
    const About about("ibv_attach_counters_point_flow.bound");
    point.index = 0;
    EXPECT_REFUSED(ibv_attach_counters_point_flow(counters.get(), &point, nullptr));
    EXPECT_REFUSED(ibv_destroy_counters(counters.get()));
  }
  for (const uint8_t to : {1, 2, 1}) send(mac(to));
  if (next(*one) == 0) throw NotTested{"no frame of the device comes back to it"};
  EXPECT_EQ(next(*one), 1);
  uint64_t values[2] = {};
  ASSERT_SUCCEEDS(ibv_read_counters(counters.get(), values, 2, 0));
  EXPECT_EQ(values[0], 2u);
  if (has_bytes) {
    EXPECT_GE(values[1], 2 * frame_size);
  }
}

}  // namespace
}  // namespace conformance
