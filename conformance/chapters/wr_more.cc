// SPDX-License-Identifier: BSD-2-Clause
//
// The ibv_wr_* interface: memory windows, solicited events.
#include <poll.h>

#include "chapters/wr_fixture.h"

namespace conformance {
namespace {

class Fixture : public ExtendedQpTest {
 protected:
  // Connected, and a window of type 2 on target_, not bound yet.
  void make_window(uint64_t operations) {
    if ((device().attributes().device_cap_flags &
         (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) == 0)
      throw NotClaimed{"device_cap_flags has no memory windows of type 2"};
    connect(rc_operations | operations);
    region_ = make_mr(pd_, target_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    window_ = make_mw(pd_, IBV_MW_TYPE_2);
    rkey_ = ibv_inc_rkey(window_->rkey);
    info_ = {region_, target_.address(), 64, IBV_ACCESS_REMOTE_WRITE};
  }
  // By the far QP, with ordinary requests.
  ibv_wc_status far_posts(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    wr.send_flags = IBV_SEND_SIGNALED;
    EXPECT_SUCCEEDS(ibv_post_send(far_, &wr, &bad));
    return completion(far_cq_).status;
  }
  ibv_wc_status far_writes() {
    ibv_sge element{buffer_.address(), 8, mr_->lkey};
    ibv_send_wr wr = {};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.wr.rdma = {target_.address(), rkey_};
    return far_posts(wr);
  }

  const Buffer target_{64};
  Mr region_;
  Mw window_;
  uint32_t rkey_ = 0;
  ibv_mw_bind_info info_ = {};
};

CONFORMANCE_TEST(wr, WindowIsBoundAndInvalidated, "ibv_wr_post.bind-mw", "ibv_wr_post.local-inv") {
  make_window(IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV);
  start();
  CALL(ibv_wr_bind_mw(qpx_, window_, rkey_, &info_));
  ASSERT_EQ(complete(), 0);
  const ibv_wc bound = completion(cq_);
  ASSERT_EQ(bound.status, IBV_WC_SUCCESS) << wc_text(bound);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  buffer_[0] = 0x77;
  EXPECT_EQ(far_writes(), IBV_WC_SUCCESS);
  EXPECT_EQ(target_[0], 0x77);
  const About about("ibv_wr_post.local-inv");
  start();
  CALL(ibv_wr_local_inv(qpx_, rkey_));
  ASSERT_EQ(complete(), 0);
  const ibv_wc invalidated = completion(cq_);
  ASSERT_EQ(invalidated.status, IBV_WC_SUCCESS) << wc_text(invalidated);
  EXPECT_EQ(invalidated.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(far_writes(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(wr, SendInvalidates, "ibv_wr_post.send-inv") {
  make_window(IBV_QP_EX_WITH_SEND_WITH_INV);
  ibv_send_wr bind = {};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw = {window_, rkey_, info_};
  ASSERT_EQ(far_posts(bind), IBV_WC_SUCCESS);
  const auto write_to_window = [&] {
    start();
    CALL(ibv_wr_rdma_write(qpx_, rkey_, target_.address()));
    sge(0, 8);
    EXPECT_EQ(complete(), 0);
    return status();
  };
  EXPECT_EQ(write_to_window(), IBV_WC_SUCCESS);
  receive();
  start();
  CALL(ibv_wr_send_inv(qpx_, rkey_));
  sge(0, 8);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  const ibv_wc received = completion(far_cq_);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(received.invalidated_rkey, rkey_);
  EXPECT_EQ(write_to_window(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(wr, SolicitedRaisesAnEvent, "ibv_wr_post.solicited") {
  far_channel_ = make_channel(device());
  connect();
  ASSERT_SUCCEEDS(ibv_req_notify_cq(far_cq_, 1));
  const auto readable = [&](std::chrono::milliseconds time) {
    pollfd waiting{far_channel_->fd, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(scaled(time).count())) == 1;
  };
  for (const bool is_solicited : {false, true}) {
    receive();
    start();
    qpx_->wr_flags = IBV_SEND_SIGNALED | (is_solicited ? IBV_SEND_SOLICITED : 0);
    CALL(ibv_wr_send(qpx_));
    sge(0, 8);
    ASSERT_EQ(complete(), 0);
    EXPECT_EQ(status(), IBV_WC_SUCCESS);
    EXPECT_EQ(readable(is_solicited ? std::chrono::seconds(3) : std::chrono::milliseconds(20)), is_solicited);
  }
  ibv_cq* cq = nullptr;
  void* its_context = nullptr;
  ASSERT_EQ(CALL(ibv_get_cq_event(far_channel_, &cq, &its_context)), 0);
  EXPECT_EQ(cq, far_cq_.get());
  ibv_ack_cq_events(cq, 1);
}

}  // namespace
}  // namespace conformance
