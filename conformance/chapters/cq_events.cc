// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: notifications and completion channels.
#include <utility>

#include "chapters/cq_events_fixture.h"
#include "support/waiting_call.h"

namespace conformance::cq_events_chapter {
namespace {

using Fixture = CqEventTest;

CONFORMANCE_TEST(cq, ArmedRaisesAnEvent, "ibv_req_notify_cq.event", "ibv_req_notify_cq.zero",
                 "ibv_get_cq_event.cq-and-context", "ibv_get_cq_event.poll") {
  ABOUT("ibv_req_notify_cq.zero") arm(own().receives());
  const About about("ibv_req_notify_cq.event");
  expect_no_event();
  be_sent();
  ASSERT_TRUE(readable(std::chrono::seconds(3))) << "expected: an event within 3 s; seen: none";
  ABOUT("ibv_get_cq_event.cq-and-context") expect_event(own().receives());
}

CONFORMANCE_TEST(cq, UnarmedRaisesNone, "ibv_req_notify_cq.not-armed") {
  be_sent();
  send();
  expect_no_event();
}

CONFORMANCE_TEST(cq, OneEventForOneRequest, "ibv_req_notify_cq.one-shot") {
  arm(own().receives());
  for (int i = 0; i < 4; ++i) be_sent();
  expect_event(own().receives());
  expect_no_event();
  arm(own().receives());
  drain(own().receives());
  be_sent();
  expect_event(own().receives());
}

CONFORMANCE_TEST(cq, SolicitedOnlySkipsOthers, "ibv_req_notify_cq.solicited-skips") {
  arm(own().receives(), true);
  arm(own().cq, true);
  be_sent();
  send();
  expect_no_event();
}

CONFORMANCE_TEST(cq, SolicitedOnlyWakesForSolicited, "ibv_req_notify_cq.solicited-wakes") {
  arm(own().receives(), true);
  be_sent(IBV_SEND_SOLICITED);
  expect_event(own().receives());
}

CONFORMANCE_TEST(cq, SolicitedOnlyWakesForErrors, "ibv_req_notify_cq.solicited-error") {
  arm(own().cq, true);
  ibv_sge element = own().sge(0, 8);
  ibv_send_wr wr = own().request(IBV_WR_RDMA_WRITE, &element);
  wr.wr.rdma = {other().address(-4096), other().facts().rkey};
  ASSERT_TRUE(succeeded(own().post(wr)));
  EXPECT_NE(completion(own().cq).status, IBV_WC_SUCCESS);
  expect_event(own().cq);
}

CONFORMANCE_TEST(cq, NothingThereIsEagain, "ibv_get_cq_event.nonblocking") {
  ibv_cq* cq;
  void* cq_context;
  errno = 0;
  EXPECT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), -1);
  EXPECT_EQ(errno, EAGAIN);
}

CONFORMANCE_TEST(cq, ChannelServesSeveral, "ibv_get_cq_event.several-cqs") {
  arm(own().cq);
  send();
  expect_event(own().cq);
  arm(own().receives());
  be_sent();
  expect_event(own().receives());
}

CONFORMANCE_TEST(cq, AcknowledgesSeveralAtOnce, "ibv_ack_cq_events.several") {
  // Acknowledged as well where something throws: destroying the CQ would wait for ever.
  struct Events {
    ibv_cq* const cq;
    unsigned count = 0;
    ~Events() { acknowledge(); }
    void acknowledge() {
      if (count > 0) ibv_ack_cq_events(cq, std::exchange(count, 0u));
    }
  } events{own().receives()};
  for (int i = 0; i < 3; ++i) {
    arm(own().receives());
    drain(own().receives());
    be_sent();
    if (!readable(std::chrono::seconds(3)))
      throw NotTested{"an armed CQ raises no event: ibv_req_notify_cq.event, ibv_req_notify_cq.one-shot"};
    ibv_cq* cq;
    void* cq_context;
    ASSERT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), 0);
    ++events.count;
  }
  events.acknowledge();
  EXPECT_SUCCEEDS(own().qp.destroy());
  EXPECT_SUCCEEDS(own().receive_cq.destroy());  // would block on an unacknowledged event
}

CONFORMANCE_TEST(cq, DestroyWaitsForAcknowledgement, "ibv_ack_cq_events.destroy-waits") {
  arm(own().receives());
  be_sent();
  if (!readable(std::chrono::seconds(3)))
    throw NotTested{"an armed CQ raises no event: ibv_req_notify_cq.event"};
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), 0);
  EXPECT_SUCCEEDS(own().qp.destroy());
  WaitingCall destroy([&] { return own().receive_cq.destroy(); });
  const testing::AssertionResult waits = destroy.waits();
  EXPECT_TRUE(waits) << "ibv_destroy_cq, before the event was acknowledged";
  if (waits) ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(destroy.result(), 0);
  if (!waits && own().receive_cq) ibv_ack_cq_events(cq, 1);  // refused: it is still there
}

}  // namespace
}  // namespace conformance::cq_events_chapter
