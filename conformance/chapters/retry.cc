// SPDX-License-Identifier: BSD-2-Clause
//
// Receivers that are not ready, peers that do not answer: which status, and when. Lower bounds are exact,
// upper ones generous.
#include <string>

#include "support/pair.h"

namespace conformance::retry_chapter {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// By the value of min_rnr_timer: Linux include/rdma/ib_verbs.h, enum ib_rnr_timeout.
constexpr int rnr_microseconds[] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                    160,    240,   320,   480,    640,    960,    1280,   1920,
                                    2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                    40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};

microseconds ack_timeout(uint8_t timeout) { return microseconds((4096ll << timeout) / 1000); }

class Fixture : public PairTest {
 protected:
  static PairSpec rnr(uint8_t retries, uint8_t timer, ibv_qp_type type = IBV_QPT_RC) {
    PairSpec spec;
    spec.both.type = type;
    spec.path.rnr_retry = retries;
    spec.path.min_rnr_timer = timer;
    spec.path.timeout = 19;  // not the reason for a failure
    return spec;
  }
  // What the far end does is in question.
  static PairSpec of_the_responder(PairSpec spec) {
    spec.tests_far = true;
    return spec;
  }
  static PairSpec silent(uint8_t timeout, uint8_t retries) {
    PairSpec spec;
    spec.path.timeout = timeout;
    spec.path.retry_count = retries;
    return spec;
  }
  // Posts, waits for the completion, and returns the time that both took.
  microseconds time_of(const SendRequest& request, ibv_wc_status expected) {
    microseconds time;
    const Completion done = completion_of(request, time);
    EXPECT_EQ(done.status, expected) << completion_text(done);
    return time;
  }
  // The same of a request that finds no receive: with which status it fails says retry.rnr.status.
  microseconds time_to_fail(const SendRequest& request) {
    microseconds time;
    const Completion done = completion_of(request, time);
    EXPECT_NE(done.status, IBV_WC_SUCCESS) << completion_text(done);
    return time;
  }
  // The same as time_of; another status and no completion concern these clauses. The test ends.
  microseconds time_of(const SendRequest& request, ibv_wc_status expected, ClauseId status,
                       ClauseId not_never) {
    microseconds time;
    Completion done;
    {
      const About about(not_never);
      done = completion_of(request, time);
    }
    const About about(status);
    if (done.status != expected) throw Deviation{"seen: " + completion_text(done), Where::current()};
    return time;
  }
  Completion completion_of(const SendRequest& request, microseconds& time) {
    const auto begin = Clock::now();
    if (near().post(request) != 0) throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    const Completion done = near().completions(1, false, Where::current(), std::chrono::seconds(8)).front();
    time = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
    return done;
  }
  // The failure comes at the right time, and at last: `late` bounds it on a busy machine.
  static void expect_in_time(ClauseId not_sooner, ClauseId not_never, microseconds time, microseconds least,
                             std::chrono::seconds late) {
    {
      const About about(not_sooner);
      EXPECT_GE(time.count(), least.count()) << "microseconds";
    }
    const About about(not_never);
    EXPECT_LE(time, 20 * least + scaled(late));
  }
};

CONFORMANCE_TEST(retry, NotReadyInTheEnd, "retry.rnr.status", "retry.rnr.not-sooner", "retry.rnr.not-never") {
  const std::pair<uint8_t, uint8_t> table[] = {{1, 20}, {3, 20}, {2, 24}, {6, 14}};
  for (const auto& [retries, timer] : table) {
    SCOPED_TRACE("rnr_retry " + std::to_string(retries) + ", min_rnr_timer " + std::to_string(timer));
    new_pair(rnr(retries, timer));
    const microseconds least(retries * rnr_microseconds[timer]);
    const microseconds time =
        time_of(send_request({{0, 8}}), IBV_WC_RNR_RETRY_EXC_ERR, "retry.rnr.status", "retry.rnr.not-never");
    ABOUT("retry.rnr.status") EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
    if (topology().is_loopback()) {
      expect_in_time("retry.rnr.not-sooner", "retry.rnr.not-never", time, least, std::chrono::seconds(2));
      continue;
    }
    // The responder says how long: some have a time of their own, whatever min_rnr_timer is.
    ABOUT("retry.rnr.not-sooner") not_tested("how long the far end asks to wait is not known");
    ABOUT("retry.rnr.not-never") EXPECT_LE(time, 20 * least + scaled(std::chrono::seconds(2)));
  }
}

CONFORMANCE_TEST(retry, NotReadyForImmediateData, "retry.rnr.write-imm") {
  pair(rnr(2, 14));
  time_of(remote_request(IBV_WR_RDMA_WRITE_WITH_IMM, {{0, 8}}, far().facts()), IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
}

CONFORMANCE_TEST(retry, NoRetriesNoWait, "retry.rnr.zero") {
  microseconds best = microseconds::max();
  for (int attempt = 0; attempt < 5 && best >= microseconds(rnr_microseconds[0]); ++attempt) {
    new_pair(rnr(0, 0));
    best = std::min(best, time_to_fail(send_request({{0, 8}})));
  }
  EXPECT_LT(best.count(), rnr_microseconds[0]) << "microseconds, the best of five";
}

CONFORMANCE_TEST(retry, SevenIsForEver, "retry.rnr.seven", "retry.rnr.in-time") {
  pair(rnr(7, 12));
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_TRUE(near().stays_empty(false, milliseconds(60)));
  const About about("retry.rnr.in-time");
  ASSERT_EQ(far().receive(0, 64, 5), 0);
  ASSERT_EQ(far().receive(64, 64, 6), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().id, 5u);
  EXPECT_TRUE(far().stays_empty(true)) << "the message came twice";
}

CONFORMANCE_TEST(retry, ResponderStays, "retry.rnr.responder-stays") {
  pair(of_the_responder(rnr(1, 14)));
  time_to_fail(send_request({{0, 8}}));
  EXPECT_EQ(far().state(), IBV_QPS_RTS);
  EXPECT_FALSE(far().async_event(milliseconds(20)).there);
}

CONFORMANCE_TEST(retry, OthersWaitBehind, "retry.rnr.behind") {
  pair(rnr(3, 20));
  ASSERT_EQ(near().post({send_request({{0, 8}}, 1),
                         remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), 1024, 2),
                         remote_request(IBV_WR_RDMA_READ, {{512, 8}}, far().facts(), 1024, 3)}),
            0);
  const auto done = near().completions(3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(done[i].id, i + 1);
  EXPECT_NE(done[0].status, IBV_WC_SUCCESS);  // which status: retry.rnr.status
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(done[i].status, IBV_WC_WR_FLUSH_ERR) << completion_text(done[i]);
  EXPECT_TRUE(far().untouched(0, 4096));
}

CONFORMANCE_TEST(retry, OthersNeedNoReceive, "retry.rnr.others-need-none") {
  pair(rnr(0, 0));
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD})
    if (!is_atomic(opcode) || pair().has_atomics())
      time_of(remote_request(opcode, {{0, 8}}, far().facts(), 1024), IBV_WC_SUCCESS);
}

CONFORMANCE_TEST(retry, TimerIsChanged, "retry.rnr.timer-changed") {
  pair(of_the_responder(rnr(3, 1)));
  wire::Modify how;
  how.mask = IBV_QP_MIN_RNR_TIMER;
  how.min_rnr_timer = 24;
  ASSERT_EQ(far().modify(how), 0);
  const microseconds time = time_to_fail(send_request({{0, 8}}));
  EXPECT_GE(time.count(), 3 * rnr_microseconds[24]) << "microseconds";
}

CONFORMANCE_TEST(retry, EmptySharedQueues, "retry.rnr.srq", "retry.rnr.xrc") {
  {
    const About about("retry.rnr.xrc");
    try {
      new_pair(of_the_responder(rnr(1, 14, IBV_QPT_XRC_SEND)));
      time_to_fail(send_request({{0, 8}}));
    } catch (const FarNotClaimed& refusal) {
      not_tested(refusal.reason);
    } catch (const NotClaimed& refusal) {
      not_claimed(refusal.reason);
    }
  }
  const About about("retry.rnr.srq");
  PairSpec spec = of_the_responder(rnr(1, 14));
  spec.far = spec.both;
  spec.far->srq = true;
  new_pair(spec);
  time_to_fail(send_request({{0, 8}}));
}

// As long as three times of completion_of(), for a device that is slow: late is not the same as never.
CONFORMANCE_TEST_AS(Traits().limit(30), retry, NobodyThere, "retry.timeout.status",
                    "retry.timeout.not-sooner", "retry.timeout.not-never") {
  const std::pair<uint8_t, uint8_t> table[] = {{12, 0}, {12, 2}, {14, 1}};
  for (const auto& [timeout, retries] : table) {
    SCOPED_TRACE("timeout " + std::to_string(timeout) + ", retry_cnt " + std::to_string(retries));
    new_pair(silent(timeout, retries));
    ASSERT_EQ(far().destroy_qp(), 0);
    // Less a tenth, for timers that count milliseconds.
    const microseconds least = std::max<int>(retries, 1) * ack_timeout(timeout) * 9 / 10;
    const microseconds time =
        time_of(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts()), IBV_WC_RETRY_EXC_ERR,
                "retry.timeout.status", "retry.timeout.not-never");
    ABOUT("retry.timeout.status") EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
    expect_in_time("retry.timeout.not-sooner", "retry.timeout.not-never", time, least,
                   std::chrono::seconds(5));
  }
}

// An adapter may have a least timeout of half a second, and take up to four times as long: eight times that.
CONFORMANCE_TEST_AS(Traits().limit(30), retry, SevenRetriesEnd, "retry.timeout.seven") {
  pair(silent(12, 7));
  ASSERT_EQ(far().destroy_qp(), 0);
  ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts())), 0);
  const Completion done = near().completions(1, false, Where::current(), std::chrono::seconds(20)).front();
  EXPECT_EQ(done.status, IBV_WC_RETRY_EXC_ERR) << completion_text(done);
}

CONFORMANCE_TEST(retry, NoTimeoutIsForEver, "retry.timeout.zero") {
  pair(silent(0, 1));
  ASSERT_EQ(far().destroy_qp(), 0);
  ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts())), 0);
  EXPECT_TRUE(near().stays_empty(false, milliseconds(100)));
}

// The far end stays in INIT.
PairSpec half_connected(PairSpec spec) {
  spec.is_connected = false;
  return spec;
}

CONFORMANCE_TEST(retry, NotReadyToReceive, "retry.timeout.not-ready") {
  const PairSpec spec = of_the_responder(half_connected(silent(12, 1)));
  pair(spec);
  wire::Connect init = spec.path;
  init.state = IBV_QPS_INIT;
  ASSERT_EQ(far().connect(near().facts(), init), 0);
  ASSERT_EQ(far().receive(0, 64), 0);
  ASSERT_EQ(near().connect(far().facts(), spec.path), 0);
  time_of(send_request({{0, 8}}), IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(far().stays_empty(true));
}

CONFORMANCE_TEST_AS(Traits().slow().limit(30), retry, LateReceiver, "retry.timeout.recovers") {
  const PairSpec spec = half_connected(silent(17, 7));
  pair(spec);
  ASSERT_EQ(near().connect(far().facts(), spec.path), 0);
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_TRUE(near().stays_empty());
  ASSERT_EQ(far().connect(near().facts(), spec.path), 0);
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_EQ(near().completions(1, false, Where::current(), std::chrono::seconds(10))[0].status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().stays_empty(true));
}

CONFORMANCE_TEST(retry, UnreliableMessagesAreDropped, "retry.unreliable.uc", "retry.unreliable.ud") {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    const About about(type == IBV_QPT_UC ? ClauseId("retry.unreliable.uc") : ClauseId("retry.unreliable.ud"));
    PairSpec spec;
    spec.tests_far = true;
    spec.both.type = type;
    try {
      new_pair(spec);
    } catch (const FarNotClaimed& refusal) {
      not_tested(refusal.reason);
      continue;
    } catch (const NotClaimed& refusal) {
      not_claimed(refusal.reason);
      continue;
    }
    near().fill(0, 8, 1);
    time_of(send_request({{0, 8}}), IBV_WC_SUCCESS);
    EXPECT_TRUE(far().stays_empty(true));
    ASSERT_EQ(far().receive(64, 128), 0);
    EXPECT_TRUE(far().stays_empty(true)) << "a message that nobody had a receive for";
    near().fill(0, 8, 2);
    time_of(send_request({{0, 8}}), IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().has(64 + far().data_offset(), 8, 2));
  }
}

}  // namespace
}  // namespace conformance::retry_chapter
