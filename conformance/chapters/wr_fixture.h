// SPDX-License-Identifier: BSD-2-Clause
//
// Fixtures for tests of the ibv_wr_* interface.
#pragma once

#include <algorithm>
#include <optional>

#include "support/pair.h"

namespace conformance {

inline constexpr uint64_t rc_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                          IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                          IBV_QP_EX_WITH_RDMA_READ;
inline constexpr uint64_t atomic_operations =
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

// The near end is an extended QP of the test's own; the far one an ordinary end, which gets requests.
class ExtendedQpTest : public PairTest {
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
    if (!qp && is_refusal_of_qp(errno))
      throw NotClaimed{"ibv_create_qp_ex refused with " + errno_text(errno)};
    if (!qp) throw Deviation{"expected: a QP; seen: null, errno " + errno_text(errno), Where::current()};
    return qp;
  }

  // qp_ and the far end, of far_spec_.
  void connect(uint64_t operations = rc_operations, ibv_qp_type type = IBV_QPT_RC, uint32_t inline_data = 0) {
    ibv_qp_init_attr_ex attr = attributes(type, operations);
    attr.cap.max_inline_data = inline_data;
    qp_ = create(attr);
    // A device without inline data may make the QP all the same, and say so.
    if (attr.cap.max_inline_data < inline_data)
      throw NotClaimed{"max_inline_data is " + std::to_string(attr.cap.max_inline_data)};
    made_ = attr.cap;
    qpx_ = CALL(ibv_qp_to_qp_ex(qp_));
    if (qpx_ == nullptr) throw Deviation{"ibv_qp_to_qp_ex; expected: not null; seen: null", Where::current()};
    far_spec_.type = type;
    far_.emplace(topology().far(), far_spec_);
    mr_ = make_mr(pd_, buffer_);
    conformance::connect(device(), qp_, *far_);
    qpx_->wr_flags = IBV_SEND_SIGNALED;
    qpx_->wr_id = 1;
  }
  Endpoint& far() { return *far_; }
  uint32_t far_rkey() { return far_->facts().rkey; }
  void receive(uint32_t offset = 1024) { ASSERT_EQ(far().receive(offset, 256), 0); }
  void start() { CALL(ibv_wr_start(qpx_)); }
  int complete() { return CALL(ibv_wr_complete(qpx_)); }
  void sge(size_t offset, uint32_t length) {
    ibv_wr_set_sge(qpx_, mr_->lkey, buffer_.address(offset), length);
  }
  void write(int64_t to = 2048) {
    CALL(ibv_wr_rdma_write(qpx_, far_rkey(), far().address(to)));
    sge(0, 8);
  }
  ibv_wc_status status() { return completion(cq_).status; }

  const Buffer buffer_{4096};
  Pd pd_;
  Cq cq_;
  Mr mr_;
  Qp qp_;
  ibv_qp_cap made_ = {};  // of qp_, as its creation told
  wire::MakeEnd far_spec_;
  ibv_qp_ex* qpx_ = nullptr;

 private:
  std::optional<Endpoint> far_;
};

}  // namespace conformance
