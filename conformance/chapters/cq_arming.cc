// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues: arming one that has entries, or that is armed; what is left after an overrun.
#include <infiniband/verbs.h>

#include "chapters/cq_events_fixture.h"

namespace conformance::cq_arming_chapter {
namespace {

using Fixture = CqEventTest;

// Some drivers arm a CQ when it is polled: each of these tests polls after it has armed.
CONFORMANCE_TEST(cq, ArmedWithEntries, "ibv_req_notify_cq.has-entries", "ibv_req_notify_cq.old-entries") {
  for (int i = 0; i < 3; ++i) be_sent();
  arm(own().receives());
  EXPECT_EQ(completion(own().receives()).status, IBV_WC_SUCCESS);  // two are left
  const bool has_event = readable(std::chrono::milliseconds(20));
  observe("ibv_req_notify_cq.old-entries", has_event ? "they raise one" : "they raise none");
  const About about("ibv_req_notify_cq.has-entries");
  if (has_event) {
    expect_event(own().receives());
    arm(own().receives());  // with the same entries: there may be an event at once
    EXPECT_EQ(completion(own().receives()).status, IBV_WC_SUCCESS);
  }
  be_sent();
  expect_event(own().receives());
}

CONFORMANCE_TEST(cq, ArmedForSolicitedThenForAny, "ibv_req_notify_cq.raise") {
  arm(own().receives(), true);
  arm(own().receives());
  drain(own().receives());
  be_sent();
  expect_event(own().receives());
}

CONFORMANCE_TEST(cq, ArmedForAnyThenForSolicited, "ibv_req_notify_cq.lower") {
  arm(own().receives());
  arm(own().receives(), true);
  drain(own().receives());
  be_sent();
  const bool has_event = readable(std::chrono::milliseconds(20));
  observe("ibv_req_notify_cq.lower",
          has_event ? "an unsolicited entry raises it" : "an unsolicited entry does not raise it");
  if (!has_event) be_sent(IBV_SEND_SOLICITED);
  expect_event(own().receives());
}

// The near end's receive CQ gets more entries than it has room for.
class OverrunTest : public PairTest {
 protected:
  static constexpr uint64_t first_id = 100;

  End& own() { return pair().native().end; }
  // Sends until messages are no longer received, but only a few more than the CQ can hold: it may have an
  // entry more than it says.
  void overrun() {
    constexpr int beyond = 8;
    PairSpec spec;
    spec.both.separate_cqs = true;
    spec.far = spec.both;
    spec.both.cq_entries = 4;
    const int capacity = make_cq(device(), spec.both.cq_entries)->cqe;
    if (capacity + beyond > device().attributes().max_qp_wr || capacity > 2000)
      throw NotTested{"a CQ larger than a receive queue can fill"};
    total_ = static_cast<uint64_t>(capacity + beyond);
    spec.both.receive_depth = static_cast<uint32_t>(total_);
    spec.both.channel = true;
    new_pair(spec);
    for (uint64_t i = 0; i < total_; ++i)
      if (near().receive(0, 64, first_id + i) != 0) throw Deviation{"ibv_post_recv; expected: 0", Where::current()};
    for (uint64_t i = 0; i < total_; ++i) {
      if (far().post(send_request({{0, 8}})) != 0) break;
      if (far().poll(1, scaled(std::chrono::milliseconds(500))).empty()) break;
    }
    ibv_async_event event = {};
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(3));
    while (std::chrono::steady_clock::now() < deadline) {
      if (ibv_get_async_event(context(), &event) != 0) {
        give_way();
        continue;
      }
      ibv_ack_async_event(&event);
      if (event.event_type == IBV_EVENT_CQ_ERR) return;
    }
    throw NotTested{"the CQ reports no overrun"};
  }
  uint64_t total_ = 0;
};

namespace after_overrun {
using Fixture = OverrunTest;

CONFORMANCE_TEST(cq, PolledAfterAnOverrun, "ibv_poll_cq.after-overrun") {
  overrun();
  int result = 0;
  uint64_t entries = 0;
  for (ibv_wc wc = {}; entries <= 2 * total_; ++entries) {
    result = CALL(ibv_poll_cq(own().receives(), 1, &wc));
    if (result <= 0) break;
    EXPECT_EQ(result, 1);
    EXPECT_TRUE(wc.wr_id >= first_id && wc.wr_id < first_id + total_) << wc_text(wc);
    EXPECT_EQ(wc.qp_num, own().qp->qp_num);
  }
  EXPECT_LE(entries, total_) << "more entries than requests";
  observe("ibv_poll_cq.after-overrun",
          std::to_string(entries) + " entries, then " + std::to_string(result));
}

CONFORMANCE_TEST(cq, DestroyedAfterAnOverrun, "ibv_destroy_cq.after-overrun") {
  overrun();
  EXPECT_SUCCEEDS(own().qp.destroy());
  EXPECT_SUCCEEDS(own().receive_cq.destroy());
}

}  // namespace after_overrun

}  // namespace
}  // namespace conformance::cq_arming_chapter
