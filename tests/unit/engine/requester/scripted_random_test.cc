// SPDX-License-Identifier: BSD-2-Clause
//
// The requester alone, with random scripts, against a model (requester_model.h): posts, replies of any kind
// to any request at any instant, retries, timeouts, a transport that is full, has no path or loses what is in
// flight, SQD and back. After each event completions, requests sent and states are the same.
//
// Two seconds at most. VERBENA_SCRIPT_SEED: only the script of that seed, which a failure names.
// VERBENA_FUZZ_SECONDS: for longer.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <random>
#include <string>

#include "engine/objects/flight.h"
#include "engine/objects/send_request.h"
#include "unit/engine/requester/requester_model.h"

namespace verbena {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kScripts = 2'000;
#else
constexpr uint64_t kScripts = 40'000;
#endif

class RandomScript {
 public:
  RandomScript(ScriptedRequester& there, uint64_t seed)
      : there_(there), random_(seed), setup_(random_setup()), model_(setup_, there.qp().sq_posted) {
    there.begin_again(setup_);
  }

  // False: the requester and the model differ; story() says after what.
  bool play() {
    const uint64_t length = 10 + below(40);
    for (uint64_t i = 0; i < length; ++i) {
      step();
      there_.hold_retries();
      if (!is_same()) return false;
    }
    return true;
  }
  const std::string& story() const { return story_; }

 private:
  uint64_t below(uint64_t end) { return random_() % end; }
  bool once_in(uint64_t times) { return below(times) == 0; }
  template <typename... Parts>
  void tell(const Parts&... parts) {
    ((story_ += parts), ...);
    story_ += '\n';
  }

  QpSetup random_setup() {
    QpSetup setup = ScriptedRequester::usual();
    setup.rnr_retry = static_cast<uint8_t>(below(8));
    setup.max_rd_atomic = static_cast<uint8_t>(1 + below(3));
    setup.sq_psn = once_in(4) ? 0xfffff8 : static_cast<uint32_t>(below(0x1000000));
    tell("rnr_retry ", std::to_string(setup.rnr_retry), ", max_rd_atomic ",
         std::to_string(setup.max_rd_atomic));
    return setup;
  }

  void step() {
    const uint64_t dice = below(100);
    if (dice < 34) return post();
    if (dice < 80) return reply();
    if (dice < 88) return retry();
    if (dice < 90) return expire();
    if (dice < 93) return replace();
    if (dice < 97) return set_link();
    drain_or_resume();
  }

  void post() {
    if (there_.qp().sq_posted - there_.qp().sq_freed.load() >= there_.qp().sq_size) return;
    static constexpr uint32_t kLengths[] = {0, 8, 8, 8, 1025, 3 * ScriptedTransport::kChunk};
    ModelRequest request;
    request.is_read = once_in(3);
    request.is_signaled = !once_in(4);
    request.is_fenced = once_in(6);
    request.length = kLengths[below(std::size(kLengths))];
    const uint64_t number = model_.posted();
    if (once_in(40)) {
      request.spoiled = VendorError::lkey_unknown;
      there_.transport.spoil(number, {SendOutcome::kFailed, request.spoiled});
    }
    tell("post ", std::to_string(number), request.is_read ? ": READ of " : ": WRITE of ",
         std::to_string(request.length), request.is_fenced ? ", fenced" : "",
         request.is_signaled ? "" : ", unsignaled", request.spoiled != VendorError::none ? ", spoiled" : "");
    unsigned flags = 0;
    if (request.is_signaled) flags |= IBV_SEND_SIGNALED;
    if (request.is_fenced) flags |= IBV_SEND_FENCE;
    EXPECT_EQ(there_.post(request.is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, flags, request.length), 0);
    model_.post(request);
  }

  ScriptedReply random_reply() {
    static constexpr VendorError kNaks[] = {VendorError::rkey_unknown, VendorError::remote_opcode_refused,
                                            VendorError::remote_operation_failed};
    const uint64_t dice = below(100);
    if (dice < 36) return ScriptedReply::ack();
    if (dice < 68)
      return ScriptedReply::response(once_in(20) ? VendorError::lkey_out_of_range : VendorError::none);
    if (dice < 72) return ScriptedReply::nak(kNaks[below(std::size(kNaks))]);
    if (dice < 86) return ScriptedReply::rnr(0);
    if (dice < 94) return ScriptedReply::ready();
    return ScriptedReply::not_ready(VendorError::peer_mismatch);
  }

  void reply() {
    static constexpr const char* kNames[] = {"ACK ", "response ", "NAK ", "RNR NAK ", "ready ", "not ready "};
    const bool repeats = once_in(12);
    if (!repeats) {
      last_ = random_reply();
      const uint64_t in_flight = model_.next() - model_.head();
      number_ =
          in_flight != 0 && !once_in(8) ? model_.head() + below(in_flight) : model_.head() + below(5) - 2;
      if (last_.kind == ScriptedReply::Kind::kReady && once_in(2)) number_ = there_.qp().flight.rnr_number;
    }
    tell(kNames[static_cast<size_t>(last_.kind)], std::to_string(number_),
         last_.error != VendorError::none
             ? std::string(": ") + find_vendor_error(static_cast<uint32_t>(last_.error))->name
             : std::string());
    const ScriptedReply reply = once_in(10) ? last_.twice() : last_;
    if (reply.times == 2) tell("  twice");
    there_.report(number_, reply);
    model_.reply(number_, reply);
  }

  void retry() {
    tell("retry");
    there_.retry();
    model_.retry();
  }
  void expire() {
    tell("expire");
    there_.check_at(kEndOfTime - 1);
    model_.expire();
  }
  void replace() {
    tell("replace");
    there_.transport.replace();
    there_.drive();
    model_.replace();
  }
  void set_link() {
    static constexpr const char* kNames[] = {"open", "full after ", "down"};
    const ScriptedLink link = once_in(2)   ? ScriptedLink::kOpen
                              : once_in(2) ? ScriptedLink::kFull
                                           : ScriptedLink::kDown;
    const uint32_t chunks = link == ScriptedLink::kFull ? static_cast<uint32_t>(below(4)) : 0;
    tell("link ", kNames[static_cast<size_t>(link)],
         link == ScriptedLink::kFull ? std::to_string(chunks) : "");
    there_.transport.set_link(link, VendorError::port_down, chunks);
    there_.drive();
    model_.set_link(link, VendorError::port_down, chunks);
  }
  void drain_or_resume() {
    if (model_.state == IBV_QPS_RTS) {
      const bool with_event = !once_in(3);
      tell("SQD", with_event ? "" : ", no event");
      EXPECT_EQ(there_.drain(with_event), 0);
      model_.drain(with_event);
    } else if (model_.state == IBV_QPS_SQD) {
      tell("RTS");
      EXPECT_EQ(there_.modify(IBV_QPS_RTS), model_.resume() ? 0 : EINVAL);
    }
    drained_ = true;
  }

  bool is_same() {
    for (const EndedRequest& each : there_.ended()) ended_.push_back(each);
    if (drained_) events_ += there_.drained_events();
    Qp& qp = there_.qp();
    EXPECT_EQ(ended_, model_.ended);
    EXPECT_EQ(there_.state(), model_.state);
    EXPECT_EQ(qp.sq_next, model_.head());
    EXPECT_EQ(qp.waiting != Waiting::kNothing, model_.waits());
    EXPECT_EQ(events_, model_.drained_events);
    EXPECT_EQ(there_.transport.sent, model_.sent);
    EXPECT_TRUE(there_.is_scheduled() || !model_.works() || !model_.holds() ||
                model_.head() == model_.posted());
    return !::testing::Test::HasFailure();
  }

  ScriptedRequester& there_;
  std::mt19937_64 random_;
  std::string story_;
  QpSetup setup_;
  RequesterModel model_;
  EndedRequests ended_;
  ScriptedReply last_ = ScriptedReply::ack();
  uint64_t number_ = 0;
  bool drained_ = false;
  int events_ = 0;
};

TEST(RequesterScripts, EndAsTheModelSays) {
  const char* const only = getenv("VERBENA_SCRIPT_SEED");
  const char* const seconds = getenv("VERBENA_FUZZ_SECONDS");
  const uint64_t first = only != nullptr ? strtoull(only, nullptr, 0) : 1;
  const uint64_t end = only != nullptr ? first + 1 : seconds != nullptr ? UINT64_MAX : first + kScripts;
  const int64_t until = now_ns() + (seconds != nullptr ? atoi(seconds) : 2) * int64_t{1'000'000'000};
  ScriptedRequester there;
  uint64_t seed = first;
  for (; seed < end && (seed == first || now_ns() < until); ++seed)
    if (RandomScript script(there, seed); !script.play()) {
      FAIL() << "VERBENA_SCRIPT_SEED=" << seed << " shows it:\n" << script.story();
    }
  RecordProperty("scripts", std::to_string(seed - first));
}

}  // namespace
}  // namespace verbena
