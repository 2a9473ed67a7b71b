// SPDX-License-Identifier: BSD-2-Clause
//
// Random scripts: a responder that answers late, twice, out of date or not at all, over paths that break. A
// few lines of model say what must hold all the same.
#include <random>

#include "engine/rules/send_rules.h"
#include "unit/engine/requester/scripted_transport.h"

namespace verbena {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kScripts = 10;
#else
constexpr uint32_t kScripts = 40;
#endif
constexpr uint32_t kScriptSteps = 2000;

// The responder of the model: carries each request out once and in order.
struct ModelResponder {
  uint64_t expected = 0;          // the next request
  std::deque<uint64_t> arriving;  // numbers on the current path, in the order in which they were sent
};

class RandomScript {
 public:
  explicit RandomScript(uint32_t seed) : random_(seed), requester_({.rnr_retry = 7, .max_rd_atomic = 3}) {
    requester_.transport.decide = [this](const SendRequest& request) { return take(request); };
  }

  void run() {
    for (uint32_t i = 0; i < kScriptSteps && !failed_; ++i) {
      step();
      check_completions();
    }
    if (failed_) return;
    // Everything arrives at last.
    for (const int64_t end = now_ns() + 20'000'000'000; completed_ != posted_.size() && now_ns() < end;) {
      deliver();
      answer_all();
      check_completions();
    }
    EXPECT_EQ(completed_, posted_.size());
  }

 private:
  struct Posted {
    ibv_wr_opcode opcode;
    bool answered = false;
  };

  uint32_t below(uint32_t end) { return std::uniform_int_distribution<uint32_t>(0, end - 1)(random_); }
  bool is_read(uint64_t number) const {
    return brings_response(*find_send_operation(posted_[number].opcode));
  }

  // The transport is given a request. Under send_lock.
  SendResult take(const SendRequest& request) {
    const Qp& qp = requester_.qp();
    EXPECT_LT(request.number, posted_.size());
    EXPECT_LE(request.number, last_sent_ + 1) << "a request was left out";
    last_sent_ = request.number;
    EXPECT_TRUE(!is_read(request.number) || qp.flight.responses_awaited < 3) << "max_rd_atomic";
    EXPECT_TRUE((request.flags & IBV_SEND_FENCE) == 0 || qp.flight.responses_awaited == 0) << "fence";
    responder_.arriving.push_back(request.number);
    return {SendOutcome::kSent};
  }

  void step() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return post_one();
      case 3:
      case 4:
      case 5:
        return deliver();
      case 6:
        return requester_.ack(responder_.expected);
      case 7:
        return requester_.ack(below(static_cast<uint32_t>(responder_.expected) + 1));  // out of date
      case 8:
        return answer_all();
      case 9:
        return break_path();
      case 10:
        return report_nonsense();
      default:
        return reject_next();
    }
  }

  void post_one() {
    if (posted_.size() - completed_ >= 60) return;  // QpSetup::send_wr is 64
    constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                          IBV_WR_ATOMIC_FETCH_AND_ADD};
    const ibv_wr_opcode opcode = kOpcodes[below(std::size(kOpcodes))];
    {
      const auto lock = requester_.locked();
      posted_.push_back({opcode});
    }
    unsigned flags = IBV_SEND_SIGNALED;
    if (below(6) == 0) flags |= IBV_SEND_FENCE;
    ASSERT_EQ(requester_.post_request(opcode, posted_.size() - 1, 8, flags), 0);
  }

  // The next request arrives and is carried out, unless it was before.
  void deliver() {
    const auto lock = requester_.locked();
    if (responder_.arriving.empty()) return;
    const uint64_t number = responder_.arriving.front();
    responder_.arriving.pop_front();
    // What follows a rejected request is dropped by the responder; the requester goes back.
    if (number == responder_.expected) ++responder_.expected;
  }

  // Acknowledges all that was carried out, and answers its READs and atomics, some of them twice.
  void answer_all() {
    requester_.ack(responder_.expected);
    for (uint64_t number = finished(); number < responder_.expected; ++number)
      if (is_read(number) && !posted_[number].answered) {
        posted_[number].answered = requester_.respond(number);
        if (posted_[number].answered && below(3) == 0) {
          EXPECT_FALSE(requester_.respond(number)) << "a second time";
        }
      }
    poll_cq(requester_.pair().a.send_cq.get(), 0, nullptr);
  }

  // A new path: what was on the old one is lost, responses included. The requester begins again with its
  // first unfinished request.
  void break_path() {
    const auto lock = requester_.locked();
    Qp& qp = requester_.qp();
    responder_.arriving.clear();
    last_sent_ = qp.sq_next - 1;
    for (uint64_t number = qp.sq_next; number < posted_.size(); ++number) posted_[number].answered = false;
    requester_.transport.replaced = 0;
    if (progress_send_queue(qp, false) != kEndOfTime) qp.process->scheduler().add(&qp);
  }

  // The responder has no receive WQE for the next request, or is not ready. It drops what follows, and the
  // requester sends all of that again.
  void reject_next() {
    const auto lock = requester_.locked();
    if (responder_.arriving.empty() || responder_.arriving.front() != responder_.expected) return;
    const uint64_t number = responder_.expected;
    responder_.arriving.clear();
    last_sent_ = number - 1;
    if (below(2) == 0)
      not_received(requester_.qp(), number, 1);
    else
      not_ready(requester_.qp(), number, VendorError::peer_not_ready);
  }

  uint64_t finished() {
    const auto lock = requester_.locked();
    return requester_.qp().sq_next;
  }

  void report_nonsense() {
    const uint64_t beyond = posted_.size() + below(5);
    requester_.nak(beyond, VendorError::remote_operation_failed);
    requester_.rnr(beyond);
    requester_.not_yet(beyond);
    EXPECT_FALSE(requester_.respond(beyond));
    const uint64_t end = finished();
    if (end == 0) return;
    const uint64_t number = below(static_cast<uint32_t>(end));
    requester_.nak(number, VendorError::remote_operation_failed);
    requester_.rnr(number);
    EXPECT_FALSE(requester_.respond(number));
  }

  // In posting order, each once, with success, and not before it was carried out and answered.
  void check_completions() {
    for (const ibv_wc& wc : requester_.completed()) {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.wr_id, completed_);
      if (wc.wr_id != completed_) break;
      EXPECT_LT(completed_, responder_.expected) << "completed and not carried out";
      EXPECT_TRUE(!is_read(completed_) || posted_[completed_].answered) << "completed without its response";
      ++completed_;
    }
    failed_ = ::testing::Test::HasFailure();
  }

  std::mt19937 random_;
  ScriptedRequester requester_;
  ModelResponder responder_;
  std::vector<Posted> posted_;
  uint64_t completed_ = 0;
  uint64_t last_sent_ = UINT64_MAX;  // + 1 is 0
  bool failed_ = false;
};

TEST(RequesterRandom, CompletesEachRequestOnceAndInOrder) {
  for (uint32_t seed = 1; seed <= kScripts; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomScript(seed).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace verbena
