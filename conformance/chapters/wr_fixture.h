// SPDX-License-Identifier: BSD-2-Clause
//
// What tests of the ibv_wr_* interface are made of.
#pragma once

#include <algorithm>

#include "support/ends.h"
#include "support/fixture.h"

namespace conformance {

inline constexpr uint64_t rc_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                          IBV_QP_EX_WITH_RDMA_READ;
inline constexpr uint64_t atomic_operations =
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

class ExtendedQpTest : public DeviceTest {
 protected:
  ibv_qp_init_attr_ex attributes(ibv_qp_type type, uint64_t operations) {
    if (!pd_) pd_ = make_pd(device());
    if (!cq_) cq_ = make_cq(device(), 64);
    const auto depth = static_cast<uint32_t>(device().attributes().max_qp_wr);
    const auto sges = static_cast<uint32_t>(device().attributes().max_sge);
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = attr.recv_cq = cq_;
    attr.qp_type = type;
    attr.cap = {std::min(16u, depth), std::min(16u, depth), std::min(4u, sges), std::min(4u, sges), 0};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = operations;
    return attr;
  }
  Qp create(ibv_qp_init_attr_ex& attr) {
    Qp qp(CALL(ibv_create_qp_ex(context(), &attr)));
    if (!qp && is_refusal(errno)) throw NotClaimed{"ibv_create_qp_ex refused with " + errno_text(errno)};
    if (!qp) throw Deviation{"expected: a QP; seen: null, errno " + errno_text(errno), Where::current()};
    return qp;
  }

  // qp_ is extended; far_ is an ordinary QP of the same type, with a CQ of its own.
  void connect(uint64_t operations = rc_operations, ibv_qp_type type = IBV_QPT_RC, uint32_t inline_data = 0) {
    ibv_qp_init_attr_ex attr = attributes(type, operations);
    attr.cap.max_inline_data = inline_data;
    qp_ = create(attr);
    qpx_ = CALL(ibv_qp_to_qp_ex(qp_));
    far_cq_ = make_cq(device(), 64, far_channel_);
    QpSpec spec;
    spec.type = type;
    far_ = make_qp(pd_, far_cq_, spec);
    mr_ = make_mr(pd_, buffer_,
                  device().attributes().atomic_cap == IBV_ATOMIC_NONE
                      ? all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC
                      : all_remote_access);
    bring_to(qp_, IBV_QPS_RTS, attributes_for(device(), {.destination = far_->qp_num}));
    bring_to(far_, IBV_QPS_RTS, attributes_for(device(), {.destination = qp_->qp_num}));
    qpx_->wr_flags = IBV_SEND_SIGNALED;
    qpx_->wr_id = 1;
  }
  void receive(size_t offset = 1024) {
    ibv_sge sge{buffer_.address(offset), 256, mr_->lkey};
    ibv_recv_wr wr = {1, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    ASSERT_EQ(CALL(ibv_post_recv(far_, &wr, &bad)), 0);
  }
  void start() { CALL(ibv_wr_start(qpx_)); }
  int complete() { return CALL(ibv_wr_complete(qpx_)); }
  void sge(size_t offset, uint32_t length) {
    ibv_wr_set_sge(qpx_, mr_->lkey, buffer_.address(offset), length);
  }
  void write(size_t to = 2048) {
    CALL(ibv_wr_rdma_write(qpx_, mr_->rkey, buffer_.address(to)));
    sge(0, 8);
  }
  ibv_wc_status status() { return completion(cq_).status; }

  const Buffer buffer_{4096};
  Pd pd_;
  Channel far_channel_;  // of far_cq_, where a test has made one before it connects
  Cq cq_, far_cq_;
  Mr mr_;
  Qp qp_, far_;
  ibv_qp_ex* qpx_ = nullptr;
};

}  // namespace conformance
