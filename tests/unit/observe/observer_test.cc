// SPDX-License-Identifier: BSD-2-Clause
//
// Every request, response, completion and state change passes the observer once.
#include "observe/observer.h"

#include <gtest/gtest.h>

#include <mutex>
#include <utility>
#include <vector>

#include "engine/responder/responder.h"
#include "engine/rules/vendor_error.h"
#include "observe/retry_observer.h"
#include "unit/engine/datagram_scene.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

// Keeps what it is told, in order. Attached for its lifetime.
class RecordingObserver final : public Observer, public RetryObserver {
 public:
  RecordingObserver() {
    set_observer(this);
    retry_observer.store(this);
  }
  ~RecordingObserver() {
    set_observer(nullptr);
    retry_observer.store(nullptr);
  }

  void on_request(const RequestEvent& event) override { keep(requests_, event); }
  void on_retry(const RetryEvent& event) override { keep(retries_, event); }
  void on_response(const ResponseEvent& event) override { keep(responses_, event); }
  void on_completion(const CompletionEvent& event) override { keep(completions_, event); }
  void on_state(const StateEvent& event) override { keep(states_, event); }

  // What has come since the last call.
  std::vector<RequestEvent> requests() { return take(requests_); }
  std::vector<RetryEvent> retries() { return take(retries_); }
  std::vector<ResponseEvent> responses() { return take(responses_); }
  std::vector<CompletionEvent> completion_events() { return take(completions_); }
  std::vector<StateEvent> states() { return take(states_); }

 private:
  template <typename Event>
  void keep(std::vector<Event>& events, const Event& event) {
    std::lock_guard lock(mutex_);
    events.push_back(event);
  }
  template <typename Event>
  std::vector<Event> take(std::vector<Event>& events) {
    std::lock_guard lock(mutex_);
    return std::exchange(events, {});
  }

  std::mutex mutex_;
  std::vector<RequestEvent> requests_;
  std::vector<RetryEvent> retries_;
  std::vector<ResponseEvent> responses_;
  std::vector<CompletionEvent> completions_;
  std::vector<StateEvent> states_;
};

uint8_t code(Answer answer) { return static_cast<uint8_t>(answer); }

class ObservedPair : public ::testing::Test {
 protected:
  Pair pair{{.sq_psn = 100, .rq_psn = 100}};
  Region from{pair.pd.get(), 8192}, to{pair.pd.get(), 8192};
  RecordingObserver seen;
};

// The sizes are those of the fast path and of the slow path.
TEST_F(ObservedPair, EachSendHasOneRequestOneResponseTwoCompletions) {
  uint32_t psn = 100;
  for (const uint32_t length : {8u, 200u, 4096u}) {
    ASSERT_EQ(receive(*pair.b, {to.sge(0, 4096)}, 2), 0);
    ASSERT_EQ(send(*pair.a, {from.sge(0, length)}, 1), 0);
    pair.a.sent(), pair.b.received();

    const auto requests = seen.requests();
    ASSERT_EQ(requests.size(), 1u) << length;
    EXPECT_EQ(requests[0].qpn, pair.a.number());
    EXPECT_EQ(requests[0].wr_id, 1u);
    EXPECT_EQ(requests[0].length, length);
    EXPECT_EQ(requests[0].psn, psn);
    EXPECT_EQ(requests[0].opcode, IBV_WR_SEND);
    EXPECT_EQ(requests[0].vendor_err, 0);
    const auto responses = seen.responses();
    ASSERT_EQ(responses.size(), 1u) << length;
    EXPECT_EQ(responses[0].source_qpn, pair.a.number());
    EXPECT_EQ(responses[0].target_qpn, pair.b.number());
    EXPECT_EQ(responses[0].psn, psn);
    EXPECT_EQ(responses[0].verdict, code(Answer::kAck));
    EXPECT_EQ(seen.completion_events().size(), 2u) << length;
    psn += length <= 1024 ? 1 : length / 1024;
  }
}

TEST_F(ObservedPair, SmallWritesAndReadsAreSeen) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ASSERT_EQ(rdma(*pair.a, opcode, {from.sge(0, 8)}, to.address(), to.rkey()), 0);
    EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
    const auto requests = seen.requests();
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_EQ(requests[0].opcode, opcode);
    EXPECT_EQ(seen.responses().size(), 1u);
    EXPECT_EQ(seen.completion_events().size(), 1u);
  }
}

TEST_F(ObservedPair, ANakIsAResponseAndItsRequestCarriesTheVendorError) {
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {from.sge(0, 8)}, to.address(), to.rkey() ^ 0x200), 0);
  const ibv_wc sent = pair.a.sent();
  EXPECT_EQ(sent.status, IBV_WC_REM_ACCESS_ERR);
  const auto responses = seen.responses();
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].verdict, code(Answer::kNak));
  EXPECT_EQ(responses[0].vendor_err, sent.vendor_err);
  const auto requests = seen.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].vendor_err, sent.vendor_err);
}

TEST_F(ObservedPair, ARequestThatWaitsForAReceiveIsRetriedOnce) {
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}, 3), 0);
  const auto retries = seen.retries();
  ASSERT_EQ(retries.size(), 1u);
  EXPECT_EQ(retries[0].qpn, pair.a.number());
  EXPECT_EQ(retries[0].wr_id, 3u);
  EXPECT_EQ(retries[0].psn, 100u);
  EXPECT_EQ(retries[0].length, 8u);
  EXPECT_EQ(retries[0].opcode, IBV_WR_SEND);
  EXPECT_EQ(retries[0].vendor_err, static_cast<uint8_t>(VendorError::no_receive_posted));
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  pair.a.sent(), pair.b.received();
  EXPECT_TRUE(seen.retries().empty());
}

TEST_F(ObservedPair, RequestsThatAreFlushedEndAsFlushed) {
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_ERR), 0);
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}, 7), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_WR_FLUSH_ERR);
  const auto requests = seen.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].wr_id, 7u);
  EXPECT_EQ(requests[0].vendor_err, static_cast<uint8_t>(VendorError::flushed));
  EXPECT_TRUE(seen.responses().empty());
  EXPECT_EQ(seen.completion_events().size(), 1u);
}

TEST_F(ObservedPair, NothingIsReportedOnceDetached) {
  set_observer(nullptr);
  ASSERT_EQ(receive(*pair.b, {to.sge(0, 64)}), 0);
  ASSERT_EQ(send(*pair.a, {from.sge(0, 8)}), 0);
  pair.a.sent(), pair.b.received();
  EXPECT_TRUE(seen.requests().empty());
  EXPECT_TRUE(seen.responses().empty());
  EXPECT_TRUE(seen.completion_events().empty());
}

TEST(ObservedDatagram, IsSeenWithItsVerdict) {
  DatagramScene scene;
  RecordingObserver seen;
  ASSERT_EQ(receive(*scene.b, {scene.in.sge(0, 256)}), 0);
  scene.sent(scene.a, scene.b.number(), scene.out.sge(0, 32));
  scene.b.received();
  EXPECT_EQ(seen.requests().size(), 1u);
  EXPECT_EQ(seen.completion_events().size(), 2u);
  const auto responses = seen.responses();
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].target_qpn, scene.b.number());
  EXPECT_EQ(responses[0].length, 32u);
  EXPECT_EQ(responses[0].verdict, code(Answer::kAck));

  scene.sent(scene.a, scene.b.number(), scene.out.sge(0, 32), kQkey + 1);
  const auto dropped = seen.responses();
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].verdict, code(Answer::kNak));
}

TEST(ObservedStates, EachTransitionIsReportedOnce) {
  RecordingObserver seen;
  Scene scene;
  const Owned<Cq> cq = make_cq(scene.context.get());
  const Owned<Qp> qp = make_qp(scene.pd.get(), cq.get(), cq.get());
  connect(qp.get(), qp_number(qp.get()), scene.gid());
  ASSERT_EQ(to_state(qp.get(), IBV_QPS_ERR), 0);
  ASSERT_EQ(to_state(qp.get(), IBV_QPS_RESET), 0);
  const std::vector<std::pair<ibv_qp_state, ibv_qp_state>> expected = {{IBV_QPS_RESET, IBV_QPS_INIT},
                                                                       {IBV_QPS_INIT, IBV_QPS_RTR},
                                                                       {IBV_QPS_RTR, IBV_QPS_RTS},
                                                                       {IBV_QPS_RTS, IBV_QPS_ERR},
                                                                       {IBV_QPS_ERR, IBV_QPS_RESET}};
  const auto states = seen.states();
  ASSERT_EQ(states.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(states[i].qpn, qp_number(qp.get()));
    EXPECT_EQ(states[i].from, expected[i].first) << i;
    EXPECT_EQ(states[i].to, expected[i].second) << i;
  }
}

}  // namespace
}  // namespace verbena
