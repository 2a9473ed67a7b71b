// SPDX-License-Identifier: BSD-2-Clause
//
// A CQ that ignores its overrun (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) loses completions and nothing else: the
// receive slots of the lost ones can be posted again.
#include <gtest/gtest.h>

#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/receive/shared_receive_queue.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

constexpr uint32_t kRequests = 16;
constexpr int kEntries = 4;

class LostCompletions : public ::testing::TestWithParam<uint32_t>, protected Scene {
 protected:
  LostCompletions() {
    EXPECT_EQ(create_cq(context.get(), kEntries, -1, 0, 0, &cq, {.ignore_overrun = true}), 0);
    out.fill(3);
  }
  ~LostCompletions() {
    uint32_t completion_events, async_events;
    EXPECT_EQ(destroy_cq(cq, &completion_events, &async_events), 0);
  }
  // What is not lost.
  void poll_the_rest() {
    for (ibv_wc wc; poll_cq(cq, 1, &wc) == 1;) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  Region out{pd.get(), 4096}, in{pd.get(), 4096};
  Cq* cq = nullptr;
};

TEST_P(LostCompletions, OfAnSrqLeaveItsSlots) {
  ibv_srq_attr attr{kRequests, 1, 0};
  Srq* srq = nullptr;
  ASSERT_EQ(create_srq(pd.get(), &attr, {}, 0, &srq), 0);
  {
    const Owned<Cq> send_cq = make_cq(context.get());
    const Owned<Qp> sender = make_qp(pd.get(), send_cq.get(), send_cq.get());
    ibv_qp_init_attr init{};
    init.cap = {1, 0, 1, 0, 0};
    init.qp_type = IBV_QPT_RC;
    Qp* made = nullptr;
    ASSERT_EQ(create_qp(pd.get(), &init, cq, cq, 0, &made, srq), 0);
    const Owned<Qp> receiver(made);
    connect(sender.get(), qp_number(made), gid());
    connect(made, qp_number(sender.get()), gid());
    for (int round = 0; round < 3; ++round) {
      for (uint32_t i = 0; i < kRequests; ++i) {
        Sges sges{in.sge(0, 2048)};
        ibv_recv_wr wr{i, nullptr, sges.data(), 1}, *bad = nullptr;
        ASSERT_EQ(post_srq_recv(srq, &wr, &bad), 0) << i << " of round " << round;
      }
      for (uint32_t i = 0; i < kRequests; ++i) {
        ASSERT_EQ(send(sender.get(), {out.sge(0, GetParam())}), 0);
        ASSERT_EQ(completion(send_cq.get()).status, IBV_WC_SUCCESS);
      }
      EXPECT_EQ(std::memcmp(in.data(), out.data(), GetParam()), 0);
      poll_the_rest();
    }
  }
  uint32_t events;
  EXPECT_EQ(destroy_srq(srq, &events), 0);
}

TEST_P(LostCompletions, OfADatagramQueueLeaveItsSlots) {
  const Owned<Cq> send_cq = make_cq(context.get());
  const auto make_datagram_qp = [&](Cq* receives) {
    ibv_qp_init_attr init{};
    init.cap = {16, kRequests, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, send_cq.get(), receives, 0, &qp), 0);
    DatagramScene::start(qp);
    return Owned<Qp>(qp);
  };
  const Owned<Qp> sender = make_datagram_qp(send_cq.get()), receiver = make_datagram_qp(cq);
  Address address(pd.get(), address_of(gid()));
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kRequests; ++i)
      ASSERT_EQ(receive(receiver.get(), {in.sge(0, 2048)}, i), 0) << i << " of round " << round;
    for (uint32_t i = 0; i < kRequests; ++i) {
      Sges sges{out.sge(0, GetParam())};
      ibv_send_wr wr = request(IBV_WR_SEND, sges);
      wr.wr.ud = {address.ah(), qp_number(receiver.get()), kQkey};
      ASSERT_EQ(post(sender.get(), wr), 0);
      ASSERT_EQ(completion(send_cq.get()).status, IBV_WC_SUCCESS);
    }
    poll_the_rest();
  }
}

// In the completion entry, in the bounce buffer, and placed by the sender.
INSTANTIATE_TEST_SUITE_P(Length, LostCompletions, ::testing::Values(8u, 150u, 1000u));

}  // namespace
}  // namespace verbena
