// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs that send datagrams to each other.
#pragma once

#include "unit/engine/scene.h"

namespace verbena {

inline constexpr uint32_t kQkey = 0x1234;
inline constexpr uint32_t kGrh = 40;

struct DestroyAh {
  void operator()(Ah* ah) const { EXPECT_EQ(destroy_ah(ah), 0); }
};

// An address handle as a request names it.
class Address {
 public:
  Address() = default;
  Address(Pd* pd, ibv_ah_attr attr) {
    Ah* ah = nullptr;
    EXPECT_EQ(create_ah(pd, &attr, &ah), 0);
    ah_.reset(ah);
    program_.emulated = ah;
  }
  ibv_ah* ah() { return &program_.base; }
  void destroy() { ah_.reset(); }

 private:
  AhOfProgram program_{};
  std::unique_ptr<Ah, DestroyAh> ah_;
};

inline ibv_ah_attr address_of(const GidEntry& gid, uint8_t source_index = 0) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = source_index;
  attr.grh.hop_limit = 64;
  std::memcpy(attr.grh.dgid.raw, gid.raw.data(), 16);
  return attr;
}

struct DatagramSetup {
  uint32_t send_wr = 64, recv_wr = 64, sge = 4, inline_size = 64;
  uint32_t qkey = kQkey;
};

struct DatagramScene : Scene {
  explicit DatagramScene(LinkLayer link_layer = LinkLayer::kEthernet)
      : Scene(link_layer), a(make(0xa)), b(make(0xb)) {}

  Side make(uint64_t handle, const DatagramSetup& setup = {}, Cq* channel_cq = nullptr) {
    Side side;
    side.send_cq = make_cq(context.get(), 512);
    side.recv_cq = make_cq(context.get(), 512);
    ibv_qp_init_attr init{};
    init.cap = {setup.send_wr, setup.recv_wr, setup.sge, setup.sge, setup.inline_size};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, side.send_cq.get(),
                        channel_cq != nullptr ? channel_cq : side.recv_cq.get(), handle, &qp),
              0);
    side.qp.reset(qp);
    start(*side, setup);
    return side;
  }
  static int to_init(Qp* qp, uint32_t qkey = kQkey) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = qkey;
    return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  }
  static int to_rts(Qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    return modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  static void start(Qp* qp, const DatagramSetup& setup = {}) {
    EXPECT_EQ(to_init(qp, setup.qkey), 0);
    EXPECT_EQ(to_state(qp, IBV_QPS_RTR), 0);
    EXPECT_EQ(to_rts(qp), 0);
  }

  ibv_send_wr datagram(Sges& sges, uint32_t qpn, uint64_t wr_id = 0, uint32_t qkey = kQkey) {
    ibv_send_wr wr = request(IBV_WR_SEND, sges, wr_id);
    wr.wr.ud = {to_device.ah(), qpn, qkey};
    return wr;
  }
  int send_to(const Side& from, uint32_t qpn, Sges sges, uint64_t wr_id = 0, uint32_t qkey = kQkey) {
    return post(*from, datagram(sges, qpn, wr_id, qkey));
  }
  // Sent and completed.
  void sent(const Side& from, uint32_t qpn, const ibv_sge& sge, uint32_t qkey = kQkey) {
    ASSERT_EQ(send_to(from, qpn, {sge}, 1, qkey), 0);
    EXPECT_EQ(from.sent().status, IBV_WC_SUCCESS);
  }

  Address to_device{pd.get(), address_of(gid())};
  Region out{pd.get(), 16384}, in{pd.get(), 16384};
  Side a, b;
};

}  // namespace verbena
