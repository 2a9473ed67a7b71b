// SPDX-License-Identifier: BSD-2-Clause
//
// Objects of different protection domains in one request.
#include <infiniband/verbs.h>

#include <string>

#include "chapters/mw_fixture.h"
#include "support/pattern.h"

namespace conformance::mismatch_pd_chapter {
namespace {

using Fixture = WindowTest;

// Of type 2: of type 1 ibv_bind_mw compares the PDs before the driver is asked.
CONFORMANCE_TEST(mismatch, WindowAndRegion, "mismatch.pd.window-bind") {
  const Mw mw = window(IBV_MW_TYPE_2);
  const Pd other = make_pd(device());
  const Buffer buffer(64);
  const Mr mr = make_mr(other, buffer, IBV_ACCESS_LOCAL_WRITE | read_write | IBV_ACCESS_MW_BIND);
  ibv_send_wr wr = binder().request(IBV_WR_BIND_MW, nullptr);
  wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), binding(0, 64, read_write, mr).bind_info};
  wr.bind_mw.bind_info.addr = buffer.address();
  if (binder().post(wr) != 0) return;
  EXPECT_NE(completion(binder().cq).status, IBV_WC_SUCCESS);
}

// The window's region and PD are the near end's; the second QP there is of another PD.
CONFORMANCE_TEST(mismatch, WindowAndQp, "mismatch.pd.window-use") {
  const Mw mw = window();
  ASSERT_EQ(bind(mw, 0, 64), IBV_WC_SUCCESS);
  user().fill(0, 1, 0x77);
  ASSERT_EQ(write(0, mw->rkey), IBV_WC_SUCCESS);
  const Pd other = make_pd(device());
  const Cq cq = make_cq(device());
  const Qp qp = make_qp(other, cq);
  Endpoint writer(topology().far(), {});
  connect(device(), qp, writer);
  SendRequest request = send_request({{0, 1}}, 1, IBV_WR_RDMA_WRITE);
  request.remote = binder().buffer.address(1);
  request.rkey = mw->rkey;
  ASSERT_EQ(writer.post(request), 0);
  EXPECT_EQ(writer.completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(binder().buffer[1], Buffer::untouched);
}

CONFORMANCE_TEST(mismatch, AddressHandleAndQp, "mismatch.pd.ah") {
  PairSpec spec;
  spec.both.type = IBV_QPT_UD;
  HostedEnd& own = pair(spec).native();
  const Pd other = make_pd(device());
  const Ah ah(CALL(ibv_create_ah(other, &own.address)));
  ASSERT_NE(ah, nullptr);
  near().fill_pattern(0, 8, 5);
  ASSERT_EQ(far().receive(1024, 256), 0);
  ibv_sge element = own.end.sge(0, 8);
  ibv_send_wr wr = own.end.request(IBV_WR_SEND, &element);
  wr.wr.ud.ah = ah;
  if (own.end.post(wr) != 0) return;  // refused at once
  const ibv_wc wc = completion(own.end.cq);
  const auto time = std::chrono::milliseconds(wc.status == IBV_WC_SUCCESS ? 500 : 20);
  EXPECT_TRUE(far().stays_empty(true, time)) << "the sender was told: " << ibv_wc_status_str(wc.status);
  EXPECT_TRUE(far().untouched(1024, 256));
}

// The far end sends to a QP of one PD, whose SRQ is of another; the receive's lkey is of one of them, or of a
// third. True if the message was received.
class SrqTest : public PairTest {
 protected:
  enum class Key : uint8_t { of_the_qp, of_the_srq, of_neither };

  bool receives_with(Key key) {
    // Longer than what an adapter may keep in the completion, which the CPU places without a look at the
    // lkey.
    constexpr uint32_t size = 128;
    const Buffer buffer(4096);
    const Pd of_qp = make_pd(device()), of_srq = make_pd(device()), third = make_pd(device());
    const Srq srq = make_srq(device(), of_srq);
    const Cq cq = make_cq(device());
    QpSpec spec;
    spec.srq = srq;
    ibv_qp_init_attr attr = init_attributes(within_limits(context(), spec), cq, cq);
    const Qp qp(CALL(ibv_create_qp(of_qp, &attr)));
    if (!qp) throw NotClaimed{"a QP and an SRQ of different PDs are refused with " + errno_text(errno)};
    const Mr mr = make_mr(key == Key::of_the_qp ? of_qp : key == Key::of_the_srq ? of_srq : third, buffer);
    Endpoint sender(topology().far(), {});
    connect(device(), qp, sender);
    sender.fill_pattern(0, size, 5);
    ibv_sge element = {buffer.address(), size, mr->lkey};
    ibv_recv_wr wr = {1, nullptr, &element, 1};
    ibv_recv_wr* bad = nullptr;
    if (CALL(ibv_post_srq_recv(srq, &wr, &bad)) != 0) return false;
    if (sender.post(send_request({{0, size}})) != 0)
      throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    const bool is_received = sender.completion().status == IBV_WC_SUCCESS;
    ibv_wc wc = {};
    if (is_received) {
      wc = completion(cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    } else if (CALL(ibv_poll_cq(cq, 1, &wc)) > 0) {  // "error.srq.receive-lkey" asks whether it is there
      EXPECT_NE(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
    }
    EXPECT_TRUE(is_received ? differs_at(buffer.data(), size, 5) == size
                            : buffer.is(Buffer::untouched, 0, buffer.size()));
    return is_received;
  }
};

namespace srqs {
using Fixture = SrqTest;

CONFORMANCE_TEST(mismatch, SrqAndQp, "mismatch.pd.srq", "mismatch.pd.srq-third") {
  ABOUT("mismatch.pd.srq") {
    const bool by_qp = receives_with(Key::of_the_qp), by_srq = receives_with(Key::of_the_srq);
    EXPECT_TRUE(by_qp || by_srq) << "neither is good";
    observe("mismatch.pd.srq",
            std::string(by_qp ? "an lkey of the QP's PD is good" : "one of the QP's PD is not") +
                (by_srq ? "; one of the SRQ's PD is good" : "; one of the SRQ's PD is not"));
  }
  ABOUT("mismatch.pd.srq-third") EXPECT_FALSE(receives_with(Key::of_neither));
}

}  // namespace srqs

}  // namespace
}  // namespace conformance::mismatch_pd_chapter
