// SPDX-License-Identifier: BSD-2-Clause
//
// Asynchronous events of QPs and CQs. That of an SRQ's limit is in srq.cc.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <optional>
#include <thread>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/waiting_call.h"

namespace conformance {
namespace {

class Fixture : public DeviceTest {
 protected:
  Ends& ends(const EndsSpec& spec = {}) {
    if (!ends_) {
      ends_.emplace(device(), spec);
      fcntl(context()->async_fd, F_SETFL, fcntl(context()->async_fd, F_GETFL) | O_NONBLOCK);
    }
    return *ends_;
  }
  End& near() { return ends().near; }
  End& far() { return ends().far; }

  // The next event of this type, not acknowledged; others on the way are acknowledged and let go. Throws
  // Deviation when it does not come.
  ibv_async_event wait_for(ibv_event_type type) {
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd waiting{context()->async_fd, POLLIN, 0};
      if (poll(&waiting, 1, 50) != 1) continue;
      ibv_async_event event = {};
      if (ibv_get_async_event(context(), &event) != 0) continue;
      trace(std::string("ibv_get_async_event: ") + ibv_event_type_str(event.event_type));
      if (event.event_type == type) return event;
      ibv_ack_async_event(&event);
    }
    throw Deviation{std::string("expected: the event '") + ibv_event_type_str(type) + "'; seen: none",
                    Where::current()};
  }
  void write_outside(End& from, const End& to) {
    ibv_sge element = from.sge(0, 8);
    ibv_send_wr wr = from.remote(IBV_WR_RDMA_WRITE, &element, to);
    wr.wr.rdma.remote_addr = to.buffer.address() - 4096;
    ASSERT_TRUE(succeeded(from.post(wr)));
    EXPECT_EQ(completion(from.cq).status, IBV_WC_REM_ACCESS_ERR);
  }
  // One message more than the far end's CQ has room for.
  void overrun() {
    EndsSpec spec;
    spec.separate_cqs = true;
    spec.cq_entries = 4;
    const int capacity = make_cq(device(), spec.cq_entries)->cqe;
    const int most = device().attributes().max_qp_wr;
    if (capacity + 8 > most || capacity > 2000) throw NotTested{"a CQ larger than a receive queue can fill"};
    spec.qp.receive_depth = static_cast<uint32_t>(capacity) + 8;
    ends(spec);
    for (int i = 0; i < capacity + 1; ++i) {
      ASSERT_TRUE(succeeded(far().post_receive(0, 64)));
      ibv_sge element = near().sge(0, 8);
      ibv_send_wr wr = near().request(IBV_WR_SEND, &element);
      ASSERT_TRUE(succeeded(near().post(wr)));
      if (i < capacity) {
        ASSERT_EQ(completion(near().cq).status, IBV_WC_SUCCESS) << "send " << i;
      }
    }
  }
  // An event of near()'s QP, whichever of those that this device raises is to be had; gives its type.
  ibv_event_type provoke() {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    if (modify(near().qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0) return IBV_EVENT_SQ_DRAINED;
    write_outside(far(), near());
    return IBV_EVENT_QP_ACCESS_ERR;
  }
  void TearDown() override { ends_.reset(); }

 private:
  std::optional<Ends> ends_;
};

CONFORMANCE_TEST(async, RefusedAccessIsAnEvent, "ibv_get_async_event.qp-access-err") {
  write_outside(near(), far());
  ibv_async_event event = wait_for(IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, far().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, OverrunIsAnEvent, "ibv_get_async_event.cq-err", "ibv_poll_cq.overrun-event") {
  overrun();
  ibv_async_event event = wait_for(IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, far().receives());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, FirstMessageInRtrIsAnEvent, "ibv_get_async_event.comm-est") {
  ends();  // the descriptor
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Buffer buffer(256);
  const Mr mr = make_mr(pd, buffer);
  const Qp sender = make_qp(pd, cq), receiver = make_qp(pd, cq);
  bring_to(receiver, IBV_QPS_RTR, attributes_for(device(), {.destination = sender->qp_num}));
  bring_to(sender, IBV_QPS_RTS, attributes_for(device(), {.destination = receiver->qp_num}));
  ibv_sge element{buffer.address(), 64, mr->lkey};
  ibv_recv_wr receive = {1, nullptr, &element, 1};
  ibv_recv_wr* bad_receive;
  ASSERT_EQ(CALL(ibv_post_recv(receiver, &receive, &bad_receive)), 0);
  ibv_send_wr wr = {};
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad;
  ASSERT_EQ(CALL(ibv_post_send(sender, &wr, &bad)), 0);
  ibv_async_event event = wait_for(IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, receiver.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, DrainedQueueIsAnEvent, "ibv_get_async_event.sq-drained") {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_TRUE(succeeded(modify(near().qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)));
  ibv_async_event event = wait_for(IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, near().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, LastRequestOfAnSrqIsAnEvent, "ibv_get_async_event.last-wqe") {
  ends();
  const Pd pd = make_pd(device());
  const Cq cq = make_cq(device());
  const Srq srq = make_srq(device(), pd);
  QpSpec spec;
  spec.srq = srq;
  const Qp qp = make_qp(pd, cq, spec);
  bring_to(qp, IBV_QPS_RTS, attributes_for(device(), {.destination = qp->qp_num}));
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_TRUE(succeeded(modify(qp, attr, IBV_QP_STATE)));
  ibv_async_event event = wait_for(IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, DestroyWaitsForAcknowledgement, "ibv_ack_async_event.destroy-waits") {
  ibv_async_event event = wait_for(provoke());
  WaitingCall destroy([&] { return near().qp.destroy(); });
  EXPECT_TRUE(destroy.waits()) << "ibv_destroy_qp, before the event was acknowledged";
  ibv_ack_async_event(&event);
  EXPECT_EQ(destroy.result(), 0);
}

CONFORMANCE_TEST(async, OneOfSeveralThreadsGetsIt, "ibv_get_async_event.one-thread") {
  ends();
  std::atomic<int> got{0};
  std::atomic<bool> stop{false};
  std::thread threads[2];
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      while (!stop) {
        pollfd waiting{context()->async_fd, POLLIN, 0};
        if (poll(&waiting, 1, 10) != 1) continue;
        ibv_async_event event = {};
        if (ibv_get_async_event(context(), &event) != 0) continue;  // the other one was first
        got += event.event_type == IBV_EVENT_SQ_DRAINED || event.event_type == IBV_EVENT_QP_ACCESS_ERR;
        ibv_ack_async_event(&event);
      }
    });
  provoke();
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
  while (got == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  // Time for a second one, if there were one.
  const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::milliseconds(30));
  while (got == 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 1);
}

CONFORMANCE_TEST(async, InvalidRequestIsAnEvent, "ibv_get_async_event.qp-req-err") {
  EndsSpec spec;
  spec.path.access = IBV_ACCESS_REMOTE_READ;  // the QP takes no writes
  ends(spec);
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr wr = near().remote(IBV_WR_RDMA_WRITE, &element, far());
  ASSERT_TRUE(succeeded(near().post(wr)));
  const ibv_wc_status status = completion(near().cq).status;
  if (status == IBV_WC_REM_ACCESS_ERR)
    throw NotTested{"the responder takes this for an access error, which is another event"};
  EXPECT_EQ(status, IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event = wait_for(IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, far().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, OverrunIsFatalToTheQp, "ibv_get_async_event.qp-fatal") {
  overrun();
  ibv_async_event event = wait_for(IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, far().qp.get());
  EXPECT_EQ(state_of(far().qp), IBV_QPS_ERR);
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, MigrationIsAnEvent, "ibv_get_async_event.path-mig") {
  if ((device().attributes().device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) == 0)
    throw NotClaimed{"device_cap_flags has no alternate paths"};
  for (const End* end : {&near(), &far()}) {
    ibv_qp_attr attr = attributes_for(device(), {});
    attr.alt_ah_attr = device().own_address();
    attr.alt_port_num = device().port_number();
    attr.alt_timeout = 14;
    attr.path_mig_state = IBV_MIG_REARM;
    ASSERT_TRUE(succeeded(modify(end->qp, attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)));
  }
  ibv_qp_attr attr = {};
  attr.path_mig_state = IBV_MIG_MIGRATED;
  ASSERT_TRUE(succeeded(modify(near().qp, attr, IBV_QP_PATH_MIG_STATE)));
  ASSERT_TRUE(succeeded(far().post_receive(0, 64)));
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr wr = near().request(IBV_WR_SEND, &element);
  ASSERT_TRUE(succeeded(near().post(wr)));
  ibv_async_event event = wait_for(IBV_EVENT_PATH_MIG);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace conformance
