// SPDX-License-Identifier: BSD-2-Clause
//
// UC and UD over a port that goes down and comes up again (`verbena event`): what is sent meanwhile is
// silently lost, no state changes, and what is sent afterwards arrives (vol. 1, 9.8: nothing is
// acknowledged).
#include <gtest/gtest.h>

#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "fabric/device_events.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

class LossyPort : public ::testing::TestWithParam<ibv_qp_type>, protected DatagramScene {
 protected:
  LossyPort() {
    if (GetParam() == IBV_QPT_UC) {
      a.qp.reset();
      b.qp.reset();
      a = connected(0xa);
      b = connected(0xb);
      join(*a, b.number());
      join(*b, a.number());
    }
    out.fill(3);
  }
  Side connected(uint64_t handle) {
    Side side;
    side.send_cq = make_cq(context.get(), 64);
    side.recv_cq = make_cq(context.get(), 64);
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 1, 1, 0};
    init.qp_type = IBV_QPT_UC;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, side.send_cq.get(), side.recv_cq.get(), handle, &qp), 0);
    side.qp.reset(qp);
    return side;
  }
  void join(Qp* qp, uint32_t dest) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = dest;
    attr.ah_attr = address_of(gid());
    ASSERT_EQ(
        modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
        0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  void raise(ibv_event_type type) {
    uint32_t told = 0;
    ASSERT_EQ(raise_device_event(node.directory(), node.path(), 0, type, &told), 0);
  }
  // Sent, and completed with success, whether it arrives or not.
  void send_one(uint32_t length) {
    Sges sges{out.sge(0, length)};
    const bool datagrams = GetParam() == IBV_QPT_UD;
    ASSERT_EQ(post(*a, datagrams ? datagram(sges, b.number()) : request(IBV_WR_SEND, sges)), 0);
    EXPECT_EQ(a.sent().status, IBV_WC_SUCCESS);
  }
  void expect_both_as_before() {
    EXPECT_EQ(qp_state(*a), IBV_QPS_RTS);
    EXPECT_EQ(qp_state(*b), IBV_QPS_RTS);
  }
};

TEST_P(LossyPort, WhatIsSentWhileItIsDownIsLost) {
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, 5), 0);
  raise(IBV_EVENT_PORT_ERR);
  for (const uint32_t length : {8u, 200u, 600u}) send_one(length);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  raise(IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  expect_both_as_before();
}

TEST_P(LossyPort, WhatIsSentWhenItIsUpAgainArrives) {
  for (uint64_t id : {5, 6}) ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, id), 0);
  send_one(8);
  ASSERT_EQ(b.received().wr_id, 5u);
  raise(IBV_EVENT_PORT_ERR);
  send_one(8);
  raise(IBV_EVENT_PORT_ACTIVE);
  send_one(16);
  const ibv_wc wc = b.received();
  EXPECT_EQ(wc.wr_id, 6u);
  EXPECT_EQ(wc.byte_len, 16u + (GetParam() == IBV_QPT_UD ? kGrh : 0));
  expect_both_as_before();
}

TEST_P(LossyPort, ReceivesMayBePostedWhileItIsDown) {
  raise(IBV_EVENT_PORT_ERR);
  ASSERT_EQ(receive(*b, {in.sge(0, 1000)}, 5), 0);
  raise(IBV_EVENT_PORT_ACTIVE);
  send_one(600);
  EXPECT_EQ(b.received().wr_id, 5u);
}

TEST_P(LossyPort, ALocalErrorIsFoundAllTheSame) {
  raise(IBV_EVENT_PORT_ERR);
  ibv_sge sge = out.sge(0, 8);
  sge.lkey ^= 0xff00;
  Sges sges{sge};
  ASSERT_EQ(post(*a, GetParam() == IBV_QPT_UD ? datagram(sges, b.number()) : request(IBV_WR_SEND, sges)), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(qp_state(*a), IBV_QPS_SQE);
}

INSTANTIATE_TEST_SUITE_P(Of, LossyPort, ::testing::Values(IBV_QPT_UC, IBV_QPT_UD), [](const auto& type) {
  return std::string(type.param == IBV_QPT_UC ? "Uc" : "Ud");
});

}  // namespace
}  // namespace verbena
