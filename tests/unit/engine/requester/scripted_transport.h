// SPDX-License-Identifier: BSD-2-Clause
//
// A requester alone: its transport is the test's. The transport writes down what it is given, answers send()
// as its script says, and reports outcomes when the test says so.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/local/fast_path.h"
#include "engine/objects/process.h"
#include "engine/requester/requester.h"
#include "unit/engine/scene.h"

namespace verbena {

class ScriptedTransport final : public Transport {
 public:
  struct Sent {
    uint64_t number;
    ibv_wr_opcode opcode;
    uint32_t psn;
    uint32_t done;               // bytes sent before
    uint32_t responses_awaited;  // before
  };

  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override {
    const SendResult result = take_result(qp, request);
    log.push_back(
        {request.number, operation.opcode, next_psn(qp), request.done, qp.flight.responses_awaited});
    if (result.outcome == SendOutcome::kPart) request.done += chunk_size();
    return result;
  }
  bool is_synchronous() const override { return false; }
  uint32_t chunk_size() const override { return 1024; }
  VendorError find_path(Qp&) override { return path; }
  int was_replaced(Qp&) override { return std::exchange(replaced, kSamePath); }
  uint64_t patience_ns(const Qp&) const override { return 3'600'000'000'000; }
  int64_t grace_ns(Qp&, int64_t) override { return grace; }
  void watch(Qp&) override { ++watched; }
  void abandon(Qp&) override { ++abandoned; }

  // Under send_lock.
  std::vector<Sent> log;
  std::deque<SendResult> results;                        // of the next calls of send(); then kSent
  std::function<SendResult(const SendRequest&)> decide;  // if set, in place of `results`
  VendorError path = VendorError::none;
  int replaced = kSamePath;
  int64_t grace = 0;
  int watched = 0, abandoned = 0;

 private:
  SendResult take_result(Qp&, const SendRequest& request) {
    if (decide) return decide(request);
    if (results.empty()) return {SendOutcome::kSent};
    const SendResult result = results.front();
    results.pop_front();
    return result;
  }
};

// A connected queue pair with that transport, and memory for its requests.
class ScriptedRequester {
 public:
  explicit ScriptedRequester(const QpSetup& setup = {}) : pair_(setup) {
    fast_path_enabled = true;
    const auto lock = locked();
    qp().transport = &transport;
  }
  ~ScriptedRequester() {
    EXPECT_EQ(to_state(&qp(), IBV_QPS_ERR), 0);
    const auto lock = locked();
    qp().transport = original_;
  }

  Qp& qp() { return **pair_.a; }
  Pair& pair() { return pair_; }
  std::unique_lock<SpinLock> locked() { return std::unique_lock(qp().send_lock); }

  // Posts a request of `length` bytes.
  int post_request(ibv_wr_opcode opcode, uint64_t wr_id, uint32_t length = 8,
                   unsigned flags = IBV_SEND_SIGNALED) {
    Sges sges{memory_.sge(0, length)};
    ibv_send_wr wr = request(opcode, sges, wr_id, flags);
    wr.wr.rdma = {memory_.address(), memory_.rkey()};
    return post(&qp(), wr);
  }
  int post_send_request(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    return post_request(IBV_WR_SEND, wr_id, 8, flags);
  }

  // Reports of the responder.
  void ack(uint64_t below) {
    const auto lock = locked();
    acknowledged(qp(), below);
  }
  void nak(uint64_t number, VendorError error) {
    const auto lock = locked();
    refused(qp(), number, error);
  }
  void rnr(uint64_t number, uint8_t timer = 1) {
    const auto lock = locked();
    not_received(qp(), number, timer);
  }
  void not_yet(uint64_t number) {
    const auto lock = locked();
    not_ready(qp(), number, VendorError::peer_not_ready);
  }
  // false: nothing awaits this response
  bool respond(uint64_t number, VendorError error = VendorError::none) {
    const auto lock = locked();
    SendRequest* const awaiting = find_awaiting_response(qp(), number);
    if (awaiting != nullptr) responded(qp(), *awaiting, error);
    return awaiting != nullptr;
  }
  void replace_path(int arrived = 0) {
    const auto lock = locked();
    transport.replaced = arrived;
    if (progress_send_queue(qp(), false) != kEndOfTime) qp().process->scheduler().add(&qp());
  }
  // As if the time of what is in flight were over.
  void time_out() {
    const auto lock = locked();
    if (qp().give_up_at != kEndOfTime) check_deadline(qp(), qp().give_up_at);
  }

  std::vector<uint64_t> sent_numbers() {
    const auto lock = locked();
    std::vector<uint64_t> numbers;
    for (const auto& sent : transport.log) numbers.push_back(sent.number);
    return numbers;
  }
  // Waits until the transport was given `count` requests, and drives the send queue meanwhile.
  bool sends(size_t count) {
    for (const int64_t end = now_ns() + 20'000'000'000; now_ns() < end; sched_yield()) {
      poll_cq(pair_.a.send_cq.get(), 0, nullptr);
      if (sent_numbers().size() >= count) return true;
    }
    return false;
  }
  std::vector<ibv_wc> completed() {
    std::vector<ibv_wc> all;
    for (ibv_wc wc{}; poll_cq(pair_.a.send_cq.get(), 1, &wc) == 1;) all.push_back(wc);
    return all;
  }
  // Of completed(): wr_id and status.
  using Ends = std::vector<std::pair<uint64_t, ibv_wc_status>>;
  Ends ends() {
    Ends all;
    for (const ibv_wc& wc : completed()) all.emplace_back(wc.wr_id, wc.status);
    return all;
  }

  ScriptedTransport transport;

 private:
  struct SlowPath {
    SlowPath() { fast_path_enabled = false; }
  } slow_path_;
  Pair pair_;
  Transport* const original_ = qp().transport;
  Region memory_{pair_.pd.get(), 65536};
};

}  // namespace verbena
