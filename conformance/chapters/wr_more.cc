// SPDX-License-Identifier: BSD-2-Clause
//
// The ibv_wr_* interface: memory windows, solicited events.
#include "chapters/wr_fixture.h"

namespace conformance::wr_more_chapter {
namespace {

class Fixture : public ExtendedQpTest {
 protected:
  void need_windows() {
    if ((device().attributes().device_cap_flags &
         (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) == 0)
      throw NotClaimed{"device_cap_flags has no memory windows of type 2"};
  }
  // Connected, and a window of type 2 on target_, not bound yet.
  void make_window(uint64_t operations) {
    need_windows();
    connect(rc_operations | operations);
    region_ = make_mr(pd_, target_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    window_ = make_mw(pd_, IBV_MW_TYPE_2);
    rkey_ = ibv_inc_rkey(window_->rkey);
    info_ = {region_, target_.address(), 64, IBV_ACCESS_REMOTE_WRITE};
  }
  ibv_wc_status far_writes() {
    SendRequest request = send_request({{0, 8}}, 1, IBV_WR_RDMA_WRITE);
    request.remote = target_.address();
    request.rkey = rkey_;
    EXPECT_EQ(far().post(request), 0);
    return far().completion().status;
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
  far().fill(0, 8, 0x77);
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
  need_windows();
  far_spec_.access |= IBV_ACCESS_MW_BIND;
  connect(rc_operations | IBV_QP_EX_WITH_SEND_WITH_INV);
  const wire::Window window = far().bind_window(true, 0, 64, IBV_ACCESS_REMOTE_WRITE);
  if (window.status != IBV_WC_SUCCESS && !topology().is_loopback())
    throw NotTested{"the far end binds no window: " + name_of(window.status)};
  ASSERT_EQ(window.status, IBV_WC_SUCCESS);
  const auto write_to_window = [&] {
    start();
    CALL(ibv_wr_rdma_write(qpx_, window.rkey, far().address()));
    sge(0, 8);
    EXPECT_EQ(complete(), 0);
    return status();
  };
  EXPECT_EQ(write_to_window(), IBV_WC_SUCCESS);
  receive();
  start();
  CALL(ibv_wr_send_inv(qpx_, window.rkey));
  sge(0, 8);
  ASSERT_EQ(complete(), 0);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
  const Completion received = far().received();
  EXPECT_NE(received.flags & IBV_WC_WITH_INV, 0u);
  EXPECT_EQ(received.invalidated, window.rkey);
  EXPECT_EQ(write_to_window(), IBV_WC_REM_ACCESS_ERR);
}

CONFORMANCE_TEST(wr, SolicitedRaisesAnEvent, "ibv_wr_post.solicited") {
  far_spec_.channel = true;
  connect();
  const int error = far().arm(true, true);
  if (error == EOPNOTSUPP) throw NotTested{"the far end's CQ cannot be armed for solicited entries only"};
  ASSERT_EQ(error, 0);
  for (const bool is_solicited : {false, true}) {
    receive();
    start();
    qpx_->wr_flags = IBV_SEND_SIGNALED | (is_solicited ? IBV_SEND_SOLICITED : 0);
    CALL(ibv_wr_send(qpx_));
    sge(0, 8);
    ASSERT_EQ(complete(), 0);
    EXPECT_EQ(status(), IBV_WC_SUCCESS);
    const wire::Event event =
        far().cq_event(is_solicited ? std::chrono::seconds(3) : std::chrono::milliseconds(20));
    EXPECT_EQ(event.there, is_solicited);
  }
}

}  // namespace
}  // namespace conformance::wr_more_chapter
