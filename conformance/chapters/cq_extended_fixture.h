// SPDX-License-Identifier: BSD-2-Clause
//
// Fixture for tests of extended completion queues.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <thread>

#include "support/pair.h"

namespace conformance {

inline constexpr uint64_t basic_fields = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;

struct DestroyCqEx {
  void operator()(ibv_cq_ex* cq) const { ibv_destroy_cq(ibv_cq_ex_to_cq(cq)); }
};
using CqEx = std::unique_ptr<ibv_cq_ex, DestroyCqEx>;

class ExtendedCqTest : public PairTest {
 protected:
  ibv_cq_init_attr_ex attributes(uint32_t entries = 16) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = entries;
    attr.wc_flags = basic_fields;
    return attr;
  }
  CqEx create(ibv_cq_init_attr_ex attr) {
    CqEx cq(CALL(ibv_create_cq_ex(context(), &attr)));
    if (!cq && (errno == EOPNOTSUPP || errno == ENOSYS))
      throw NotClaimed{"ibv_create_cq_ex refused with " + errno_text(errno)};
    return cq;
  }

  // A QP of the extended CQ, connected with an end wherever far ends are.
  void connect(uint64_t more_fields = 0) {
    ibv_cq_init_attr_ex attr = attributes();
    attr.wc_flags |= more_fields;
    attr.channel = channel_;
    if (channel_) cq_ = CqEx(CALL(ibv_create_cq_ex(context(), &attr)));
    if (!cq_) {
      channel_ = Channel();
      attr.channel = nullptr;
      cq_ = create(attr);
    }
    if (!cq_) throw Deviation{"an extended CQ is needed; errno " + errno_text(errno), Where::current()};
    pd_ = make_pd(device());
    mr_ = make_mr(pd_, buffer_);
    qp_ = make_qp(pd_, ibv_cq_ex_to_cq(cq_.get()));
    sender_.emplace(topology().far(), wire::MakeEnd{});
    conformance::connect(device(), qp_, *sender_);
  }
  // Sends from the far end, for a completion at the extended CQ.
  void send(uint64_t id, ibv_wr_opcode opcode = IBV_WR_SEND, unsigned flags = 0) {
    ibv_sge element{buffer_.address(), 64, mr_->lkey};
    ibv_recv_wr receive = {id, nullptr, &element, 1};
    ibv_recv_wr* bad_receive;
    EXPECT_EQ(CALL(ibv_post_recv(qp_, &receive, &bad_receive)), 0);
    SendRequest request = send_request({{0, 64}}, id, opcode);
    request.flags = flags;
    request.imm = 0x01020304;
    EXPECT_EQ(sender_->post(request), 0);
  }
  // Sends ids 1 to `count`, and waits until all their completions are there: for the event of the last one,
  // or, without such events, a moment.
  void send_many(uint64_t count) {
    ibv_cq* const cq = ibv_cq_ex_to_cq(cq_.get());
    const bool tells = channel_ && CALL(ibv_req_notify_cq(cq, 1)) == 0;
    for (uint64_t id = 1; id <= count; ++id) send(id, IBV_WR_SEND, id == count ? IBV_SEND_SOLICITED : 0);
    pollfd event = {tells ? channel_->fd : -1, POLLIN, 0};
    if (!tells || poll(&event, 1, static_cast<int>(scaled(std::chrono::seconds(1)).count())) != 1) {
      std::this_thread::sleep_for(scaled(std::chrono::milliseconds(20)));
      return;
    }
    ibv_cq* its_cq = nullptr;
    void* its_context = nullptr;
    if (CALL(ibv_get_cq_event(channel_, &its_cq, &its_context)) == 0) ibv_ack_cq_events(cq, 1);
  }
  // start_poll until something is there.
  int start() {
    ibv_poll_cq_attr attr = {};
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
    int error = ENOENT;
    while (error == ENOENT && std::chrono::steady_clock::now() < deadline)
      error = ibv_start_poll(cq_.get(), &attr);
    trace("ibv_start_poll = " + errno_text(error));
    return error;
  }
  // next_poll, or the next batch: after ENOENT only end_poll may follow.
  int next() {
    const int error = CALL(ibv_next_poll(cq_.get()));
    if (error != ENOENT) return error;
    CALL(ibv_end_poll(cq_.get()));
    return start();
  }

  const Buffer buffer_{256};
  Pd pd_;
  Mr mr_;
  Channel channel_;  // of cq_, for tests that set it before they connect
  CqEx cq_;
  Qp qp_;
  std::optional<Endpoint> sender_;
};

}  // namespace conformance
