// SPDX-License-Identifier: BSD-2-Clause
//
// A transport that obeys a script and carries nothing anywhere. The test says what becomes of each send(),
// and what the responder replies, when, and how often. Asynchronous, or synchronous as that of shared memory.
//
// All calls hold send_lock, as those of a real transport.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/objects/transport.h"
#include "engine/requester/requester.h"
#include "engine/rules/timers.h"

namespace verbena {

// What the responder says about a request.
struct ScriptedReply {
  enum class Kind : uint8_t { kAck, kResponse, kNak, kRnr, kReady, kNotReady };
  Kind kind;
  VendorError error = VendorError::none;
  uint8_t rnr_timer = 0;
  int times = 1;

  // The request and all before it have been carried out.
  static ScriptedReply ack() { return {Kind::kAck}; }
  // The response of a READ or atomic; `error`: its bytes cannot be put where they belong.
  static ScriptedReply response(VendorError error = VendorError::none) { return {Kind::kResponse, error}; }
  static ScriptedReply nak(VendorError error) { return {Kind::kNak, error}; }
  static ScriptedReply rnr(uint8_t timer) { return {Kind::kRnr, VendorError::none, timer}; }
  static ScriptedReply ready() { return {Kind::kReady}; }
  static ScriptedReply not_ready(VendorError error) { return {Kind::kNotReady, error}; }
  ScriptedReply twice() const { return {kind, error, rnr_timer, 2}; }
};

// A request that was sent completely, for the first time or again.
struct SentRequest {
  uint64_t number;
  uint32_t psn;
  bool operator==(const SentRequest&) const = default;
  friend void PrintTo(const SentRequest& sent, std::ostream* out) {
    *out << sent.number << " with PSN 0x" << std::hex << sent.psn << std::dec;
  }
};
using SentRequests = std::vector<SentRequest>;

enum class ScriptedLink : uint8_t { kOpen, kFull, kDown };

class ScriptedTransport final : public Transport {
 public:
  static constexpr uint32_t kChunk = 4096;  // a longer message takes several send()s

  explicit ScriptedTransport(bool is_synchronous = false) : is_synchronous_(is_synchronous) {}

  // ---- the script ---------------------------------------------------------------------------------------

  // kFull: send() takes `chunks` more and then returns kBlocked. kDown: it returns kUnreachable for `reason`.
  void set_link(ScriptedLink link, VendorError reason = VendorError::none, uint32_t chunks = 0) {
    link_ = link;
    reason_ = reason;
    chunks_left_ = chunks;
  }
  // Each send() of this request returns `result`, until spare() is called.
  void spoil(uint64_t number, SendResult result) { spoiled_[number] = result; }
  void spare(uint64_t number) { spoiled_.erase(number); }
  // The reply to the next sending of the request that has no reply yet; deliver() makes it.
  void reply(uint64_t number, ScriptedReply reply) { replies_[number].push_back(reply); }
  // The connection breaks: what is in flight is lost. `arrived`: was_replaced() of transport.h.
  void replace(int arrived = 0) { replaced_ = arrived; }
  // No script, and nothing sent.
  void forget() {
    set_link(ScriptedLink::kOpen);
    replaced_ = kSamePath;
    spoiled_.clear();
    replies_.clear();
    due_.clear();
    sent.clear();
  }

  int64_t grace = 0;
  uint64_t at_least = 0;  // patience_ns of kUnreachable
  bool takes_wakeups = false;

  // ---- what the requester did ---------------------------------------------------------------------------

  SentRequests sent;
  uint64_t sends = 0;  // calls of send()
  int watched = 0, abandoned = 0, asked_for_wakeup = 0;

  std::vector<uint64_t> numbers_sent() const {
    std::vector<uint64_t> numbers;
    for (const SentRequest& each : sent) numbers.push_back(each.number);
    return numbers;
  }

  // ---- replies ------------------------------------------------------------------------------------------

  // Reports one reply at once. A queue pair that is not in RTS or SQD hears nothing
  // (AnswerReceiver::lock_requester).
  static void report(Qp& qp, uint64_t number, const ScriptedReply& reply) {
    for (int i = 0; i < reply.times; ++i) {
      const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
      if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return;
      report_once(qp, number, reply);
    }
  }

  // Reports the replies to what has been sent, in the order of sending.
  void deliver(Qp& qp) {
    while (!due_.empty()) {
      const auto [number, reply] = due_.front();
      due_.pop_front();
      report(qp, number, reply);
    }
  }

  // ---- the transport ------------------------------------------------------------------------------------

  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override {
    ++sends;
    if (const auto found = spoiled_.find(request.number); found != spoiled_.end()) return found->second;
    if (link_ == ScriptedLink::kFull && chunks_left_ == 0) return {SendOutcome::kBlocked};
    if (link_ == ScriptedLink::kDown) return {SendOutcome::kUnreachable, reason_, 0, at_least};
    if (chunks_left_ != 0) --chunks_left_;
    if (!brings_response(operation)) {
      request.done += std::min(request.length - request.done, kChunk);
      if (request.done < request.length) return {is_synchronous_ ? SendOutcome::kYield : SendOutcome::kPart};
    }
    sent.push_back({request.number, next_psn(qp)});
    if (auto& replies = replies_[request.number]; !replies.empty()) {
      due_.push_back({request.number, replies.front()});
      replies.pop_front();
    }
    if (!is_synchronous_) return {SendOutcome::kSent};
    complete_request(qp, request);
    return {SendOutcome::kCompleted};
  }

  bool is_synchronous() const override { return is_synchronous_; }
  uint32_t chunk_size() const override { return kChunk; }
  VendorError find_path(Qp&) override { return link_ == ScriptedLink::kDown ? reason_ : VendorError::none; }
  int was_replaced(Qp&) override { return std::exchange(replaced_, kSamePath); }
  uint64_t patience_ns(const Qp& qp) const override {
    return transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt);
  }
  int64_t grace_ns(Qp&, int64_t) override { return grace; }
  void watch(Qp&) override { ++watched; }
  bool ask_for_wakeup(Qp&) override { return ++asked_for_wakeup, takes_wakeups; }
  void abandon(Qp&) override { ++abandoned; }

 private:
  static void report_once(Qp& qp, uint64_t number, const ScriptedReply& reply) {
    using Kind = ScriptedReply::Kind;
    switch (reply.kind) {
      case Kind::kAck:
        return acknowledged(qp, number + 1);
      case Kind::kResponse:
        if (SendRequest* const request = find_awaiting_response(qp, number); request != nullptr)
          responded(qp, *request, reply.error);
        return;
      case Kind::kNak:
        return refused(qp, number, reply.error);
      case Kind::kRnr:
        return not_received(qp, number, reply.rnr_timer);
      case Kind::kReady:
        return ready_to_receive(qp, number);
      case Kind::kNotReady:
        return not_ready(qp, number, reply.error);
    }
  }

  const bool is_synchronous_;
  ScriptedLink link_ = ScriptedLink::kOpen;
  VendorError reason_ = VendorError::none;
  uint32_t chunks_left_ = 0;
  int replaced_ = kSamePath;
  std::map<uint64_t, SendResult> spoiled_;
  std::map<uint64_t, std::deque<ScriptedReply>> replies_;
  std::deque<std::pair<uint64_t, ScriptedReply>> due_;
};

}  // namespace verbena
