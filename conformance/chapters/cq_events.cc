// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: notifications and completion channels.
#include <fcntl.h>
#include <poll.h>

#include <optional>

#include "support/ends.h"
#include "support/fixture.h"
#include "support/waiting_call.h"

namespace conformance {
namespace {

class Fixture : public DeviceTest {
 protected:
  // The far end's CQs have a channel; those of the near end have none.
  Ends& ends() {
    if (ends_) return *ends_;
    channel_ = make_channel(device());
    fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
    EndsSpec spec;
    spec.separate_cqs = true;
    spec.channel = channel_;
    ends_.emplace(device(), spec);
    return *ends_;
  }
  End& near() { return ends().near; }
  End& far() { return ends().far; }
  ibv_comp_channel* channel() {
    ends();
    return channel_;
  }

  void send(unsigned flags = 0) {
    EXPECT_TRUE(succeeded(far().post_receive(0, 64)));
    ibv_sge element = near().sge(0, 8);
    ibv_send_wr wr = near().request(IBV_WR_SEND, &element);
    wr.send_flags |= flags;
    EXPECT_TRUE(succeeded(near().post(wr)));
    EXPECT_EQ(completion(near().cq).status, IBV_WC_SUCCESS);
  }
  void arm(ibv_cq* cq, bool solicited_only = false) {
    EXPECT_SUCCEEDS(ibv_req_notify_cq(cq, solicited_only));
  }

  // Waits for the channel's descriptor; false when nothing came within the time.
  bool readable(std::chrono::milliseconds time) {
    pollfd waiting{channel()->fd, POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(scaled(time).count())) == 1;
  }
  // The next event is of this CQ; acknowledged.
  void expect_event(ibv_cq* expected) {
    ASSERT_TRUE(readable(std::chrono::seconds(3))) << "expected: an event within 3 s; seen: none";
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), 0);
    EXPECT_EQ(cq, expected);
    EXPECT_EQ(cq_context, expected->cq_context);
    ibv_ack_cq_events(cq, 1);
  }
  void expect_no_event() {
    EXPECT_FALSE(readable(std::chrono::milliseconds(20))) << "expected: no event; seen: one";
  }

  void TearDown() override {
    ends_.reset();  // before its channel
  }

 private:
  Channel channel_;
  std::optional<Ends> ends_;
};

CONFORMANCE_TEST(cq, ArmedRaisesAnEvent, "ibv_req_notify_cq.event", "ibv_req_notify_cq.zero",
                 "ibv_get_cq_event.cq-and-context", "ibv_get_cq_event.poll") {
  arm(far().receives());
  expect_no_event();
  send();
  expect_event(far().receives());
}

CONFORMANCE_TEST(cq, UnarmedRaisesNone, "ibv_req_notify_cq.not-armed") {
  send();
  expect_no_event();
}

CONFORMANCE_TEST(cq, OneEventForOneRequest, "ibv_req_notify_cq.one-shot") {
  arm(far().receives());
  for (int i = 0; i < 4; ++i) send();
  expect_event(far().receives());
  expect_no_event();
  arm(far().receives());
  send();
  expect_event(far().receives());
}

CONFORMANCE_TEST(cq, SolicitedOnlySkipsOthers, "ibv_req_notify_cq.solicited-skips") {
  arm(far().receives(), true);
  arm(near().cq, true);
  send();
  expect_no_event();
}

CONFORMANCE_TEST(cq, SolicitedOnlyWakesForSolicited, "ibv_req_notify_cq.solicited-wakes") {
  arm(far().receives(), true);
  send(IBV_SEND_SOLICITED);
  expect_event(far().receives());
}

CONFORMANCE_TEST(cq, SolicitedOnlyWakesForErrors, "ibv_req_notify_cq.solicited-error") {
  arm(near().cq, true);
  ibv_sge element = near().sge(0, 8);
  ibv_send_wr wr = near().remote(IBV_WR_RDMA_WRITE, &element, far());
  wr.wr.rdma.remote_addr = far().buffer.address() - 4096;
  ASSERT_TRUE(succeeded(near().post(wr)));
  EXPECT_NE(completion(near().cq).status, IBV_WC_SUCCESS);
  expect_event(near().cq);
}

CONFORMANCE_TEST(cq, NothingThereIsEagain, "ibv_get_cq_event.nonblocking") {
  ibv_cq* cq;
  void* cq_context;
  errno = 0;
  EXPECT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), -1);
  EXPECT_EQ(errno, EAGAIN);
}

CONFORMANCE_TEST(cq, ChannelServesSeveral, "ibv_get_cq_event.several-cqs") {
  arm(near().cq);
  send();
  expect_event(near().cq);
  arm(far().receives());
  send();
  expect_event(far().receives());
}

CONFORMANCE_TEST(cq, AcknowledgesSeveralAtOnce, "ibv_ack_cq_events.several") {
  for (int i = 0; i < 3; ++i) {
    arm(far().receives());
    send();
    ASSERT_TRUE(readable(std::chrono::seconds(3)));
    ibv_cq* cq;
    void* cq_context;
    ASSERT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), 0);
  }
  CALL(ibv_ack_cq_events(far().receives(), 3));
  EXPECT_SUCCEEDS(far().qp.destroy());
  EXPECT_SUCCEEDS(far().receive_cq.destroy());  // would wait for ever for an event that was not acknowledged
}

CONFORMANCE_TEST(cq, DestroyWaitsForAcknowledgement, "ibv_ack_cq_events.destroy-waits") {
  arm(far().receives());
  send();
  ASSERT_TRUE(readable(std::chrono::seconds(3)));
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(CALL(ibv_get_cq_event(channel(), &cq, &cq_context)), 0);
  EXPECT_SUCCEEDS(far().qp.destroy());
  WaitingCall destroy([&] { return far().receive_cq.destroy(); });
  const testing::AssertionResult waits = destroy.waits();
  EXPECT_TRUE(waits) << "ibv_destroy_cq, before the event was acknowledged";
  if (waits) ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(destroy.result(), 0);
}

}  // namespace
}  // namespace conformance
