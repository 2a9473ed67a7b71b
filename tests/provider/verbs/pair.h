// SPDX-License-Identifier: BSD-2-Clause
//
// A connected pair: the requester works on `local_`, the responder on `remote_`.
#pragma once

#include "fixture.h"

namespace verbena::test {

class PairTest : public QpTest {
 protected:
  static constexpr size_t kBufferSize = 64 * 1024;

  void SetUp() override {
    QpTest::SetUp();
    if (HasFatalFailure()) return;
    responder_cq_ = make_cq(64);
    ASSERT_NE(responder_cq_, nullptr);
    local_ = Buffer(pd_.get(), kBufferSize);
    remote_ = Buffer(pd_.get(), kBufferSize);
    make_pair();
  }

  // Makes both QPs (again) and connects them.
  void make_pair(const Connection& connection = {}, int sq_sig_all = 0) {
    requester_.reset();
    responder_.reset();
    ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
    init.sq_sig_all = sq_sig_all;
    requester_.reset(ibv_create_qp(pd_.get(), &init));
    ASSERT_NE(requester_, nullptr);
    init = qp_init(responder_cq_.get(), responder_cq_.get());
    responder_.reset(ibv_create_qp(pd_.get(), &init));
    ASSERT_NE(responder_, nullptr);
    connect(requester_.get(), responder_->qp_num, connection);
    connect(responder_.get(), requester_->qp_num, connection);
  }

  // A signaled request; for RDMA and atomics on the beginning of `remote_`.
  ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge* list, int count = 1, uint64_t id = 1) const {
    ibv_send_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = list;
    wr.num_sge = count;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = remote_.address();
      wr.wr.atomic.rkey = remote_.rkey();
    } else {
      wr.wr.rdma.remote_addr = remote_.address();
      wr.wr.rdma.rkey = remote_.rkey();
    }
    return wr;
  }
  int post(ibv_send_wr* wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(requester_.get(), wr, &bad);
  }
  // Posts one request and returns its completion.
  ibv_wc carry_out(ibv_send_wr wr) {
    EXPECT_EQ(post(&wr), 0);
    return next_completion(cq_.get());
  }
  ibv_wc carry_out(ibv_wr_opcode opcode, ibv_sge sge) { return carry_out(request(opcode, &sge)); }

  int receive(ibv_sge* list, int count, uint64_t id = 1001) {
    return receive_on(responder_.get(), list, count, id);
  }
  int receive(ibv_sge sge, uint64_t id = 1001) { return receive(&sge, 1, id); }
  static int receive_on(ibv_qp* qp, ibv_sge* list, int count, uint64_t id) {
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = list;
    wr.num_sge = count;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }

  bool same_bytes(size_t length, size_t local_offset = 0, size_t remote_offset = 0) const {
    return memcmp(local_.data() + local_offset, remote_.data() + remote_offset, length) == 0;
  }

  Cq responder_cq_;
  Buffer local_;
  Buffer remote_;
  Qp requester_;
  Qp responder_;
};

}  // namespace verbena::test
