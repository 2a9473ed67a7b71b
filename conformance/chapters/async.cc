// SPDX-License-Identifier: BSD-2-Clause
//
// Asynchronous events of the near end's QPs and CQs, raised with the far end's help. That of an SRQ's limit
// is in srq.cc.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support/pair.h"
#include "support/waiting_call.h"

namespace conformance::async_chapter {
namespace {

constexpr const char* kNoEvent = "the device raises neither IBV_EVENT_SQ_DRAINED nor IBV_EVENT_QP_ACCESS_ERR";

class Fixture : public PairTest {
 protected:
  End& native() { return pair().native().end; }

  // The next event of this type, not acknowledged; others before it are acknowledged and dropped. Nothing
  // when it does not come.
  std::optional<ibv_async_event> next(ibv_event_type type) {
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
    return std::nullopt;
  }
  ibv_async_event wait_for(ibv_event_type type) {
    if (const auto event = next(type)) return *event;
    throw Deviation{std::string("expected: the event '") + ibv_event_type_str(type) + "'; seen: none",
                    Where::current()};
  }
  void write_outside() {
    ASSERT_EQ(far().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, near().facts(), -4096)), 0);
    EXPECT_EQ(far().completion().status, IBV_WC_REM_ACCESS_ERR);
  }
  // More messages than the near end's CQ says that it has room for.
  void overrun() {
    PairSpec spec;
    spec.both.separate_cqs = true;
    spec.far = spec.both;
    spec.both.cq_entries = 4;
    const int capacity = make_cq(device(), spec.both.cq_entries)->cqe;
    if (capacity < 1)
      throw NotTested{"cqe is " + std::to_string(capacity) + ", of which ibv_create_cq.at-least tells"};
    const int most = device().attributes().max_qp_wr;
    constexpr int kBeyond = 8;
    if (capacity + kBeyond > most || capacity > 2000)
      throw NotTested{"a CQ larger than a receive queue can fill"};
    messages_ = capacity + kBeyond;
    spec.both.receive_depth = static_cast<uint32_t>(messages_);
    spec.far->send_depth = 2 * kBeyond;  // its completions are not polled after the overrun
    new_pair(spec);
    // A few more than one: a CQ may have an entry more than it says.
    for (int i = 0; i < messages_; ++i) ASSERT_EQ(near().receive(0, 64), 0);
    for (int i = 0; i < messages_; ++i) {
      const int error = far().post(send_request({{0, 8}}));  // after the overrun its peer may have failed
      if (i + 1 < capacity) {                                // of the last one tells ibv_create_cq.holds-all
        ASSERT_EQ(error, 0);
        ASSERT_EQ(far().completion().status, IBV_WC_SUCCESS) << "send " << i;
      }
    }
  }
  // After overrun(). A CQ may be far larger than it says, and take them all: it has not overrun then.
  ibv_async_event wait_for_overrun(ibv_event_type type) {
    if (const auto event = next(type)) return *event;
    int taken = 0;
    for (ibv_wc wc = {}; ibv_poll_cq(native().receives(), 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS;)
      ++taken;
    if (taken == messages_) throw NotTested{"the CQ is larger than it says: it has taken all completions"};
    throw Deviation{std::string("expected: the event '") + ibv_event_type_str(type) + "'; seen: none, and " +
                        std::to_string(taken) + " of " + std::to_string(messages_) + " completions",
                    Where::current()};
  }
  void exchange(Endpoint& from, Endpoint& to) {
    ASSERT_EQ(to.receive(0, 64), 0);
    ASSERT_EQ(from.post(send_request({{0, 8}})), 0);
    EXPECT_EQ(from.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(to.received().status, IBV_WC_SUCCESS);
  }
  // After IBV_MIG_REARM at both ends: hardware arms them by what the packets of both directions say.
  void become_armed() {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    for (int i = 0; i < 20; ++i) {
      exchange(near(), far());
      exchange(far(), near());
      ASSERT_SUCCEEDS(ibv_query_qp(native().qp, &attr, IBV_QP_PATH_MIG_STATE, &init));
      if (attr.path_mig_state == IBV_MIG_ARMED) return;
      // No event tells of it.
      std::this_thread::sleep_for(scaled(std::chrono::milliseconds(10)));
    }
    throw NotTested{"the connection does not become armed, by what ibv_query_qp says"};
  }
  // Does what raises an event of the near QP on most devices; returns its type.
  ibv_event_type provoke() {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    if (modify(native().qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0)
      return IBV_EVENT_SQ_DRAINED;
    write_outside();
    return IBV_EVENT_QP_ACCESS_ERR;
  }

 private:
  int messages_ = 0;
};

CONFORMANCE_TEST(async, NothingIsThere, "ibv_get_async_event.nonblocking") {
  fcntl(context()->async_fd, F_SETFL, fcntl(context()->async_fd, F_GETFL) | O_NONBLOCK);
  ibv_async_event event = {};
  EXPECT_EQ(CALL(ibv_get_async_event(context(), &event)), -1);
}

CONFORMANCE_TEST(async, RefusedAccessIsAnEvent, "ibv_get_async_event.qp-access-err") {
  write_outside();
  ibv_async_event event = wait_for(IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, native().qp.get());
  ibv_ack_async_event(&event);
}

// Both pages promise the event; the element is ibv_get_async_event(3)'s.
CONFORMANCE_TEST(async, OverrunIsAnEvent, "ibv_get_async_event.cq-err", "ibv_poll_cq.overrun-event") {
  overrun();
  ibv_async_event event = wait_for_overrun(IBV_EVENT_CQ_ERR);
  ABOUT("ibv_get_async_event.cq-err") EXPECT_EQ(event.element.cq, native().receives());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, FirstMessageInRtrIsAnEvent, "ibv_get_async_event.comm-est") {
  PairSpec spec;
  spec.is_connected = false;
  pair(spec);
  wire::Connect only_receiving;
  only_receiving.state = IBV_QPS_RTR;
  ASSERT_EQ(near().connect(far().facts(), only_receiving), 0);
  ASSERT_EQ(far().connect(near().facts()), 0);
  ASSERT_EQ(near().receive(0, 64), 0);
  ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  const wire::Event event = near().async_event();
  if (event.there) {
    EXPECT_EQ(event.type, IBV_EVENT_COMM_EST);
    EXPECT_TRUE(event.of_end);
  }
  observe("ibv_get_async_event.comm-est", event.there ? "raised" : "not raised");
}

CONFORMANCE_TEST(async, DrainedQueueIsAnEvent, "ibv_get_async_event.sq-drained") {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  expect_sqd(modify(native().qp, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
  ibv_async_event event = wait_for(IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, native().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, LastRequestOfAnSrqIsAnEvent, "ibv_get_async_event.last-wqe") {
  PairSpec spec;
  spec.far = spec.both;
  spec.both.srq = true;
  pair(spec);
  ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
  ibv_async_event event = wait_for(IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, native().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, DestroyWaitsForAcknowledgement, "ibv_ack_async_event.destroy-waits") {
  std::optional<ibv_async_event> event = next(provoke());
  if (!event) throw NotTested{kNoEvent};
  WaitingCall destroy([&] { return native().qp.destroy(); });
  const testing::AssertionResult waits = destroy.waits();
  EXPECT_TRUE(waits) << "ibv_destroy_qp, before the event was acknowledged";
  if (waits) ibv_ack_async_event(&*event);
  EXPECT_EQ(destroy.result(), 0);
  if (!waits && native().qp) ibv_ack_async_event(&*event);  // refused: it is still there
}

CONFORMANCE_TEST(async, OneOfSeveralThreadsGetsIt, "ibv_get_async_event.one-thread") {
  pair();
  std::atomic<int> got{0};
  std::vector<std::jthread> threads;  // they end as well where what follows throws
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
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
  while (got == 0 && std::chrono::steady_clock::now() < deadline) give_way();
  // Time for a second event, if there were one.
  const auto end = std::chrono::steady_clock::now() + scaled(std::chrono::milliseconds(30));
  while (got == 1 && std::chrono::steady_clock::now() < end) give_way();
  for (std::jthread& thread : threads) thread.request_stop();
  threads.clear();
  if (got == 0) throw NotTested{kNoEvent};
  EXPECT_EQ(got, 1);
}

CONFORMANCE_TEST(async, InvalidRequestIsAnEvent, "ibv_get_async_event.qp-req-err") {
  PairSpec spec;
  spec.path.access = IBV_ACCESS_REMOTE_READ;  // the QP takes no writes
  pair(spec);
  ASSERT_EQ(far().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, near().facts())), 0);
  const ibv_wc_status status = far().completion().status;
  if (status == IBV_WC_REM_ACCESS_ERR)
    throw NotTested{"the responder takes this for an access error, which is another event"};
  if (status != IBV_WC_REM_INV_REQ_ERR)
    throw NotTested{"the write ends with " + name_of(status) + ": access.qp.write"};
  ibv_async_event event = wait_for(IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, native().qp.get());
  ibv_ack_async_event(&event);
}

CONFORMANCE_TEST(async, OverrunIsFatalToTheQp, "ibv_get_async_event.qp-fatal") {
  overrun();
  ibv_async_event event = wait_for_overrun(IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, native().qp.get());
  ibv_ack_async_event(&event);
  EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
}

CONFORMANCE_TEST(async, MigrationIsAnEvent, "ibv_get_async_event.path-mig") {
  if ((device().attributes().device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) == 0)
    throw NotClaimed{"device_cap_flags has no alternate paths"};
  // The flag is the device's. The kernel's core refuses them on every port that is not InfiniBand.
  if (device().is_ethernet()) throw NotTested{"the kernel has no alternate paths on Ethernet"};
  wire::Modify change;  // either needs an alternate path
  change.mask = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
  change.timeout = 14;
  change.migration = IBV_MIG_REARM;
  ASSERT_EQ(near().modify(change), 0);
  const int error = far().modify(change);
  if (error != 0 && !topology().is_loopback())
    throw NotTested{"the far end has no alternate paths: " + errno_text(error)};
  ASSERT_EQ(error, 0);
  become_armed();
  // The end that follows the other one has migrated without its program; of the first the page says nothing.
  change.mask = IBV_QP_PATH_MIG_STATE;
  change.migration = IBV_MIG_MIGRATED;
  ASSERT_EQ(far().modify(change), 0);
  exchange(far(), near());
  ibv_async_event event = wait_for(IBV_EVENT_PATH_MIG);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace conformance::async_chapter
