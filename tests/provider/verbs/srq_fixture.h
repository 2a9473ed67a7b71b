// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs that take their receives from one SRQ, and those that send to them.
#pragma once

#include <vector>

#include "fixture.h"

namespace verbena::test {

class SrqTest : public QpTest {
 protected:
  static constexpr size_t kBufferSize = 1 << 20;

  void SetUp() override {
    QpTest::SetUp();
    if (HasFatalFailure()) return;
    receive_cq_ = make_cq(256);
    ASSERT_NE(receive_cq_, nullptr);
    local_ = Buffer(pd_.get(), kBufferSize);
    remote_ = Buffer(pd_.get(), kBufferSize);
    srq_ = make_srq(64);
    ASSERT_NE(srq_, nullptr);
  }

  Srq make_srq(uint32_t max_wr, uint32_t max_sge = 4) {
    ibv_srq_init_attr attr = {};
    attr.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    return Srq(ibv_create_srq(pd_.get(), &attr));
  }

  struct Line {
    Qp sender, receiver;
  };
  Qp make_receiver() {
    ibv_qp_init_attr init = qp_init(receive_cq_.get(), receive_cq_.get());
    init.srq = srq_.get();
    return Qp(ibv_create_qp(pd_.get(), &init));
  }
  Line make_line(const Connection& connection = {}) {
    Line line{make_qp(), make_receiver()};
    EXPECT_NE(line.sender, nullptr);
    EXPECT_NE(line.receiver, nullptr);
    connect(line.sender.get(), line.receiver->qp_num, connection);
    connect(line.receiver.get(), line.sender->qp_num, connection);
    return line;
  }

  int post(uint64_t id, std::vector<ibv_sge> list) {
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq_.get(), &wr, &bad);
  }
  int post(uint64_t id, size_t offset, size_t length) { return post(id, {remote_.sge(offset, length)}); }

  int send(ibv_qp* qp, ibv_sge sge, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote_.address();
    wr.wr.rdma.rkey = remote_.rkey();
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  ibv_wc_status carry_out(ibv_qp* qp, ibv_sge sge, ibv_wr_opcode opcode = IBV_WR_SEND) {
    EXPECT_EQ(send(qp, sge, opcode), 0);
    return next_completion(cq_.get()).status;
  }

  int arm(uint32_t limit) {
    ibv_srq_attr attr = {};
    attr.srq_limit = limit;
    return ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_LIMIT);
  }
  uint32_t limit() {
    ibv_srq_attr attr = {};
    EXPECT_EQ(ibv_query_srq(srq_.get(), &attr), 0);
    return attr.srq_limit;
  }
  // Takes the next asynchronous event; its type, or -1.
  int next_event() {
    std::optional<ibv_async_event> event = next_async_event();
    if (!event.has_value()) return -1;
    ibv_ack_async_event(&*event);
    return event->event_type;
  }

  Cq receive_cq_;
  Buffer local_, remote_;
  Srq srq_;
};

}  // namespace verbena::test
