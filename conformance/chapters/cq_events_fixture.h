// SPDX-License-Identifier: BSD-2-Clause
//
// Fixture for tests of completion events.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>

#include "support/pair.h"

namespace conformance {

// The test owns the near end's objects: its CQs, one for each queue, have a channel. The far end gets
// requests.
class CqEventTest : public PairTest {
 protected:
  static PairSpec with_channel() {
    PairSpec spec;
    spec.both.separate_cqs = true;
    spec.far = spec.both;
    spec.both.channel = true;  // which does not block
    return spec;
  }
  End& own() { return pair(with_channel()).native().end; }
  ibv_comp_channel* channel() { return pair(with_channel()).native().channel; }
  Endpoint& other() { return pair(with_channel()).far; }

  // Sends from the near end, and polls its own completion.
  void send() {
    ASSERT_EQ(other().receive(0, 64), 0);
    ibv_sge element = own().sge(0, 8);
    ibv_send_wr wr = own().request(IBV_WR_SEND, &element);
    EXPECT_TRUE(succeeded(own().post(wr)));
    EXPECT_EQ(completion(own().cq).status, IBV_WC_SUCCESS);
  }
  // Sends from the far end; the completion stays in the near end's CQ.
  void be_sent(unsigned flags = 0) {
    EXPECT_TRUE(succeeded(own().post_receive(0, 64)));
    SendRequest request = send_request({{0, 8}});
    request.flags |= flags;
    ASSERT_EQ(other().post(request), 0);
    EXPECT_EQ(other().completion().status, IBV_WC_SUCCESS);
  }
  // No capability says whether a CQ can be armed for solicited entries only.
  void arm(ibv_cq* cq, bool solicited_only = false) {
    const int error = CALL(ibv_req_notify_cq(cq, solicited_only));
    if (solicited_only && error == EOPNOTSUPP)
      throw NotClaimed{"ibv_req_notify_cq, solicited only, refused with " + errno_text(error)};
    EXPECT_TRUE(succeeded(error));
  }

  // Empties a CQ that was armed again, as the example of ibv_get_cq_event(3) does: some drivers arm a CQ when
  // it is polled.
  static void drain(ibv_cq* cq) {
    ibv_wc wc;
    while (CALL(ibv_poll_cq(cq, 1, &wc)) > 0) {
    }
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
};

}  // namespace conformance
