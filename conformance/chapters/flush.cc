// SPDX-License-Identifier: BSD-2-Clause
//
// What becomes of requests when a QP leaves RTS: for ERR, RESET and SQD.
#include <string>

#include "support/pair.h"

namespace conformance::flush_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  // A requester that waits without limit for a receive, with a CQ for each queue.
  static PairSpec waiting(ibv_qp_type type = IBV_QPT_RC) {
    PairSpec spec;
    spec.both.type = type;
    spec.both.separate_cqs = true;
    spec.path.rnr_retry = 7;
    spec.path.min_rnr_timer = 12;
    return spec;
  }
  void expect_flushed(bool receives, const std::vector<uint64_t>& ids) {
    const auto list = near().completions(static_cast<uint32_t>(ids.size()), receives);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(list[i].status, IBV_WC_WR_FLUSH_ERR) << completion_text(list[i]);
      EXPECT_EQ(list[i].id, ids[i]);
      EXPECT_EQ(list[i].qpn, near().facts().qpn);
    }
    EXPECT_TRUE(near().stays_empty(receives));
  }
  SendRequest write(uint64_t id, int64_t at = 1024) {
    return remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), at, id);
  }
  void drain(bool notify) {
    wire::Modify how;
    how.mask = IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0);
    how.state = IBV_QPS_SQD;
    how.notify = notify;
    expect_sqd(near().modify(how));
  }
  // That a device takes requests in SQD no page says: ibv_post_send.table.rc.in-sqd tells.
  void post_in_sqd(const std::vector<SendRequest>& list) {
    if (near().post(list) != 0) throw NotClaimed{"a request in SQD is refused"};
  }
  // Refused as it should not be: the clause of the transition in the table of "qp_table" says so.
  void reset(Endpoint& end) {
    if (const int error = end.to_state(IBV_QPS_RESET); error != 0)
      throw NotTested{"a QP cannot be taken to RESET: " + errno_text(error)};
  }
  void reconnect() {
    for (Endpoint* end : {&near(), &far()}) reset(*end);
    try {
      pair().connect();
    } catch (const Deviation&) {  // error.recovers says so
      throw NotTested{"the QPs cannot be connected again after RESET"};
    }
  }
  // One message from the near end to the far one.
  void expect_traffic() {
    ASSERT_EQ(far().receive(0, 64, 99), 0);
    ASSERT_EQ(near().post(send_request({{0, 8}}, 98)), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().id, 99u);
  }

  void receives_are_flushed(ibv_qp_type type) {
    pair(waiting(type));
    for (const uint64_t id : {11, 12, 13, 14}) ASSERT_EQ(near().receive(0, 64, id), 0);
    EXPECT_TRUE(near().stays_empty(true));
    ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
    expect_flushed(true, {11, 12, 13, 14});
    EXPECT_TRUE(near().untouched(0, 4096));
  }
  void later_ones_are_flushed(ibv_qp_type type) {
    pair(waiting(type));
    ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
    std::vector<uint64_t> receives, sends;  // that were taken
    for (const uint64_t id : {21, 22}) {
      if (near().receive(0, 64, id) == 0) receives.push_back(id);
      if (near().post(send_request({{0, 8}}, id + 10)) == 0) sends.push_back(id + 10);
    }
    expect_flushed(true, receives);
    expect_flushed(false, sends);
  }
};

CONFORMANCE_TEST(flush, RcReceives, "flush.rc.receives") { receives_are_flushed(IBV_QPT_RC); }
CONFORMANCE_TEST(flush, UcReceives, "flush.uc.receives") { receives_are_flushed(IBV_QPT_UC); }
CONFORMANCE_TEST(flush, UdReceives, "flush.ud.receives") { receives_are_flushed(IBV_QPT_UD); }
CONFORMANCE_TEST(flush, RcLater, "flush.rc.later") { later_ones_are_flushed(IBV_QPT_RC); }
CONFORMANCE_TEST(flush, UcLater, "flush.uc.later") { later_ones_are_flushed(IBV_QPT_UC); }
CONFORMANCE_TEST(flush, UdLater, "flush.ud.later") { later_ones_are_flushed(IBV_QPT_UD); }

CONFORMANCE_TEST(flush, WaitingRequests, "flush.sends", "flush.unsignaled") {
  pair(waiting());
  SendRequest silent = send_request({{0, 8}}, 2);
  silent.flags = 0;
  ASSERT_EQ(near().post({send_request({{0, 8}}, 1), silent, write(3), write(4)}), 0);
  EXPECT_TRUE(near().stays_empty());
  ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
  expect_flushed(false, {1, 2, 3, 4});
  EXPECT_TRUE(far().untouched(0, 4096));
}

CONFORMANCE_TEST(flush, BehindAnError, "flush.behind-error") {
  pair(waiting());
  for (const uint64_t id : {11, 12}) ASSERT_EQ(near().receive(0, 64, id), 0);
  ASSERT_EQ(near().post({write(1, -4096), write(2), write(3)}), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_REM_ACCESS_ERR);
  expect_flushed(false, {2, 3});
  expect_flushed(true, {11, 12});
}

CONFORMANCE_TEST(flush, SharedReceivesStay, "flush.srq-stays") {
  PairSpec spec = waiting();
  spec.far = spec.both;
  spec.far->srq = true;
  spec.tests_far = true;
  pair(spec);
  ASSERT_EQ(far().receive(0, 64, 7), 0);
  ASSERT_EQ(far().to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(far().stays_empty(true));
  reconnect();
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().id, 7u);
}

CONFORMANCE_TEST(flush, ResetDiscards, "flush.reset-discards") {
  pair(waiting());
  for (const uint64_t id : {11, 12}) {
    ASSERT_EQ(near().receive(0, 64, id), 0);
    if (!topology().is_loopback()) continue;  // what another device does with its own is not in question
    ASSERT_EQ(far().receive(0, 64, id), 0);
  }
  reconnect();
  EXPECT_TRUE(near().stays_empty(true));
  EXPECT_TRUE(far().stays_empty(true));
  expect_traffic();
  ASSERT_EQ(near().post(send_request({{0, 8}}, 5)), 0);  // waits: nothing more is posted at the far end
  EXPECT_TRUE(near().stays_empty());
  reset(near());
  EXPECT_TRUE(near().stays_empty());
  reconnect();
  expect_traffic();
}

CONFORMANCE_TEST(flush, ResetTakesCompletions, "flush.reset-completions") {
  pair(waiting());
  for (const uint64_t id : {11, 12}) ASSERT_EQ(far().receive(0, 64, id), 0);
  ASSERT_EQ(near().post({send_request({{0, 8}}, 1), send_request({{0, 8}}, 2)}), 0);
  EXPECT_EQ(far().received().id, 11u);
  EXPECT_EQ(near().completion().id, 1u);            // the second of each is left in its CQ
  if (!topology().is_loopback()) far().received();  // not in another device's: that one is not in question
  reconnect();
  EXPECT_TRUE(near().stays_empty());
  EXPECT_TRUE(far().stays_empty(true));
  expect_traffic();
}

CONFORMANCE_TEST(flush, OtherEndStays, "flush.far-unaffected", "flush.err-receives-nothing") {
  PairSpec spec = waiting();
  spec.path.timeout = 12;
  spec.path.retry_count = 1;
  pair(spec);
  ASSERT_EQ(near().receive(0, 64), 0);
  ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
  expect_flushed(true, {1});
  EXPECT_EQ(far().state(), IBV_QPS_RTS);
  EXPECT_FALSE(far().async_event(std::chrono::milliseconds(20)).there);
  const About about("flush.err-receives-nothing");
  ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(near().untouched(0, 4096));
}

CONFORMANCE_TEST(flush, DrainedQueueHoldsRequests, "flush.sqd.holds") {
  pair(waiting());
  drain(false);
  near().fill(0, 8, 0x11);
  post_in_sqd({write(1), write(2, 2048)});
  EXPECT_TRUE(near().stays_empty());
  EXPECT_TRUE(far().untouched(0, 4096));
  ASSERT_EQ(near().to_state(IBV_QPS_RTS), 0);
  for (const Completion& done : near().completions(2)) EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().has(1024, 8, 0x11));
  EXPECT_TRUE(far().has(2048, 8, 0x11));
}

CONFORMANCE_TEST(flush, DrainedQueueReceives, "flush.sqd.receives") {
  pair(waiting());
  drain(false);
  ASSERT_EQ(near().receive(4096, 64), 0);
  ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().received().status, IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(flush, DrainingFinishesWhatIsUnderWay, "flush.sqd.finishes", "flush.sqd.event") {
  pair(waiting());
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_TRUE(near().stays_empty());  // under way: it finds no receive
  drain(true);
  EXPECT_EQ(near().state(), IBV_QPS_SQD);
  {
    const About about("flush.sqd.event");
    EXPECT_FALSE(near().async_event(std::chrono::milliseconds(20)).there) << "before it has drained";
  }
  {
    const About about("flush.sqd.finishes");
    ASSERT_EQ(far().receive(0, 64), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  }
  const About about("flush.sqd.event");
  const wire::Event event = near().async_event();
  ASSERT_TRUE(event.there) << "expected: IBV_EVENT_SQ_DRAINED; seen: none";
  EXPECT_EQ(event.type, IBV_EVENT_SQ_DRAINED);
}

CONFORMANCE_TEST(flush, DrainingIsTold, "flush.sqd.draining") {
  pair(waiting());
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_TRUE(near().stays_empty());
  drain(false);
  EXPECT_TRUE(near().query().draining);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(near().query().draining);
}

CONFORMANCE_TEST(flush, DrainedToError, "flush.sqd.err") {
  pair(waiting());
  drain(false);
  post_in_sqd({write(1), write(2)});
  ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
  expect_flushed(false, {1, 2});
  EXPECT_TRUE(far().untouched(0, 4096));
}

CONFORMANCE_TEST(flush, ReadyToReceiveOnly, "flush.rtr-receives") {
  PairSpec spec = waiting();
  spec.is_connected = false;
  pair(spec);
  wire::Connect receiving = spec.path;
  receiving.state = IBV_QPS_RTR;
  ASSERT_EQ(near().connect(far().facts(), receiving), 0);
  ASSERT_EQ(far().connect(near().facts(), spec.path), 0);
  ASSERT_EQ(near().receive(0, 64), 0);
  ASSERT_EQ(far().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(far().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(near().received().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace conformance::flush_chapter
