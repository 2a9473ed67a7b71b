// SPDX-License-Identifier: BSD-2-Clause
//
// Two UD queue pairs; `sender_` sends out of `out_`, `receiver_` receives into `in_`.
#pragma once

#include "fixture.h"

namespace verbena::test {

class DatagramTest : public CqTest {
 protected:
  static constexpr uint32_t kQkey = 0x11111111;
  static constexpr size_t kGrh = sizeof(ibv_grh);

  void SetUp() override {
    CqTest::SetUp();
    if (HasFatalFailure()) return;
    receiver_cq_ = make_cq(64);
    out_ = Buffer(pd_.get(), 8192);
    in_ = Buffer(pd_.get(), 8192);
    out_.fill(1);
    sender_ = make_datagram_qp(cq_.get());
    receiver_ = make_datagram_qp(receiver_cq_.get());
    ah_ = make_ah(attr_to(gid_));
    ASSERT_NE(ah_, nullptr);
  }

  Qp make_datagram_qp(ibv_cq* cq) {
    ibv_qp_init_attr init = qp_init(cq, cq);
    init.qp_type = IBV_QPT_UD;
    Qp qp(ibv_create_qp(pd_.get(), &init));
    EXPECT_NE(qp, nullptr) << strerror(errno);
    if (qp != nullptr) to_rts(qp.get());
    return qp;
  }
  static void to_rts(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = kPort;
    attr.qkey = kQkey;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }

  static ibv_ah_attr attr_to(const ibv_gid& gid, uint8_t source_index = 0) {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.grh.dgid = gid;
    attr.grh.sgid_index = source_index;
    attr.grh.hop_limit = 17;
    attr.grh.traffic_class = 0x20;
    attr.port_num = kPort;
    return attr;
  }
  Ah make_ah(ibv_ah_attr attr) { return Ah(ibv_create_ah(pd_.get(), &attr)); }

  int receive(uint64_t id = 1, size_t length = 4096) {
    ibv_sge sge = in_.sge(0, length);
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(receiver_.get(), &wr, &bad);
  }
  int send(ibv_ah* ah, uint32_t qpn, size_t length = 32) {
    ibv_sge sge = out_.sge(0, length);
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = kQkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(sender_.get(), &wr, &bad);
  }
  // Sends one that arrives.
  ibv_wc exchange(ibv_ah* ah, uint32_t qpn, size_t length = 32) {
    EXPECT_EQ(receive(), 0);
    EXPECT_EQ(send(ah, qpn, length), 0);
    EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
    return next_completion(receiver_cq_.get());
  }
  ibv_grh* grh() const { return reinterpret_cast<ibv_grh*>(in_.data()); }

  // The index of the first IPv4-mapped GID; < 0: the machine has no IPv4 address.
  int mapped_gid_index() const {
    for (int i = 0; i < port_.gid_tbl_len; i++) {
      ibv_gid gid;
      static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      if (ibv_query_gid(context_.get(), kPort, i, &gid) == 0 &&
          memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0)
        return i;
    }
    return -1;
  }

  Cq receiver_cq_;
  Buffer out_;
  Buffer in_;
  Qp sender_;
  Qp receiver_;
  Ah ah_;
};

}  // namespace verbena::test
