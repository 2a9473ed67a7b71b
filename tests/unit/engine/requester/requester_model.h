// SPDX-License-Identifier: BSD-2-Clause
//
// What a requester of an acknowledged queue pair does, said once more and more simply: lists instead of
// running numbers, no clock, one thread. Tests compare the requester with it (scripted_random_test.cc).
//
// Time is what the test says: a retry waits until retry(), a timeout comes with expire().
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/rules/psn.h"
#include "unit/engine/requester/scripted_requester.h"

namespace verbena {

struct ModelRequest {
  bool is_read = false, is_signaled = true, is_fenced = false;
  uint32_t length = 8;
  VendorError spoiled = VendorError::none;  // fails when it is sent
  // ---- so far ----
  uint32_t chunks_sent = 0;
  bool is_answered = false;

  uint32_t chunks() const {
    if (is_read || length == 0) return 1;
    return (length + ScriptedTransport::kChunk - 1) / ScriptedTransport::kChunk;
  }
};

class RequesterModel {
 public:
  using Kind = ScriptedReply::Kind;

  // The first request has the number `base`.
  RequesterModel(const QpSetup& setup, uint64_t base)
      : setup_(setup), base_(base), head_(base), sent_(base), begun_(base), acknowledged_(base) {}

  // ---- what is compared ---------------------------------------------------------------------------------

  EndedRequests ended;
  SentRequests sent;
  ibv_qp_state state = IBV_QPS_RTS;
  int drained_events = 0;

  uint64_t head() const { return head_; }  // the first request not finished
  uint64_t next() const { return sent_; }  // the first request not sent
  uint64_t posted() const { return base_ + requests_.size(); }
  bool holds() const { return holds_; }  // a retry waits for its time
  bool waits() const { return timeout_ || waits_for_receive_; }
  bool works() const { return state == IBV_QPS_RTS || state == IBV_QPS_SQD; }

  // ---- events -------------------------------------------------------------------------------------------

  void post(const ModelRequest& request) {
    requests_.push_back(request);
    if (state == IBV_QPS_ERR) flush();
    if (state == IBV_QPS_RTS) go_on();
  }

  void reply(uint64_t number, const ScriptedReply& reply) {
    for (int i = 0; i < reply.times && works(); ++i) reply_once(number, reply);
  }

  // Some time later the scheduler comes.
  void retry() {
    holds_ = false;
    if (works()) go_on();
  }

  void expire() {
    if (works() && timeout_ && head_ != posted()) fail(*timeout_);
  }

  void replace() {
    if (!works()) return;
    if (head_ < sent_ || (head_ < posted() && at(head_).chunks_sent != 0)) go_back(head_);
    holds_ = false;
    go_on();
  }

  void set_link(ScriptedLink link, VendorError reason, uint32_t chunks) {
    link_ = link;
    reason_ = reason;
    chunks_left_ = chunks;
    if (works()) go_on();
  }

  void drain(bool with_event) {
    state = IBV_QPS_SQD;
    drain_event_due_ = with_event;
    go_on();
  }
  bool resume() {
    if (waits()) return false;
    state = IBV_QPS_RTS;
    if (head_ != posted()) go_on();
    return true;
  }

 private:
  ModelRequest& at(uint64_t number) { return requests_[number - base_]; }

  uint32_t psn_of_request(uint64_t number) {
    uint64_t packets = 0;
    for (uint64_t n = base_; n < number; ++n) packets += std::max((at(n).length + 1023) / 1024, 1u);
    return static_cast<uint32_t>((setup_.sq_psn + packets) & 0xffffff);
  }

  uint32_t responses_awaited() {
    uint32_t count = 0;
    for (uint64_t n = head_; n < sent_; ++n) count += at(n).is_read && !at(n).is_answered;
    return count;
  }

  // In flight: a reply means this sending of it.
  bool is_in_flight(uint64_t number) {
    if (number < head_ || number >= posted()) return false;
    return number < sent_ || (number == sent_ && at(number).chunks_sent != 0);
  }

  void begin_timeout(VendorError reason) {
    timeout_ = reason;
    waits_for_receive_ = false;
  }
  void end_waits() {
    timeout_.reset();
    waits_for_receive_ = false;
  }

  void flush() {
    for (; head_ < posted(); ++head_) ended.push_back(EndedRequest::flushed(head_));
    sent_ = begun_ = head_;
  }
  void fail(VendorError error) {
    ended.push_back({head_++, error});
    state = IBV_QPS_ERR;
    end_waits();
    flush();
  }

  // False: the queue pair is in ERR.
  bool finish_done() {
    bool any = false;
    const bool waited_for_receive = waits_for_receive_;
    while (head_ < sent_ && !(refusal_ && refusal_->first == head_)) {
      const ModelRequest& request = at(head_);
      if (request.is_read ? !request.is_answered : head_ >= acknowledged_) break;
      if (request.is_signaled) ended.push_back({head_});
      ++head_;
      rnr_tries_ = 0;
      end_waits();
      any = true;
    }
    if (refusal_ && refusal_->first == head_) {
      fail(refusal_->second);
      return false;
    }
    if (any && head_ < begun_) {
      if (waited_for_receive)
        waits_for_receive_ = true;
      else
        begin_timeout(VendorError::peer_silent);
    }
    return true;
  }

  void acknowledge_below(uint64_t number) {
    acknowledged_ = std::max(acknowledged_, std::min(number, sent_));
  }
  void refuse(uint64_t number, VendorError error) {
    if (!refusal_ || number < refusal_->first) refusal_ = {number, error};
  }

  void go_back(uint64_t number) {
    for (uint64_t n = number; n < posted(); ++n) at(n).chunks_sent = 0, at(n).is_answered = false;
    sent_ = number;
    acknowledged_ = std::min(acknowledged_, number);
  }

  void reply_once(uint64_t number, const ScriptedReply& reply) {
    switch (reply.kind) {
      case Kind::kAck:
        acknowledge_below(number + 1);
        if (finish_done()) hear();
        return;
      case Kind::kResponse:
        if (number < head_ || number >= sent_ || !at(number).is_read || at(number).is_answered) return;
        acknowledge_below(number);
        if (reply.error != VendorError::none)
          refuse(number, reply.error);
        else
          at(number).is_answered = true;
        if (finish_done()) hear();
        return;
      case Kind::kReady:
        if (!waits_for_receive_ || !holds_ || rnr_number_ != number) return;
        if (rnr_tries_ != 0) --rnr_tries_;
        holds_ = false;
        go_on();
        return;
      default:
        if (is_in_flight(number)) refuse_or_retry(number, reply);
    }
  }

  void refuse_or_retry(uint64_t number, const ScriptedReply& reply) {
    if (reply.kind == Kind::kNotReady) {
      go_back(number);
      begin_timeout(reply.error);
      holds_ = true;
      return;
    }
    if (reply.kind == Kind::kNak) refuse(number, reply.error);
    acknowledge_below(number);
    if (!finish_done() || reply.kind == Kind::kNak) return;
    if (rnr_number_ != number) rnr_tries_ = 0;
    rnr_number_ = number;
    if (setup_.rnr_retry < 7 && rnr_tries_ >= setup_.rnr_retry) {
      refuse(number, VendorError::no_receive_posted);
      finish_done();
      return;
    }
    ++rnr_tries_;
    go_back(number);
    timeout_.reset();
    waits_for_receive_ = holds_ = true;
  }

  // Something has come from the responder.
  void hear() {
    if (sent_ == posted())
      notice_drained();
    else
      go_on();
  }

  void notice_drained() {
    if (state != IBV_QPS_SQD || head_ < begun_) return;
    end_waits();
    drained_events += std::exchange(drain_event_due_, false);
  }

  // Sends what may be sent.
  void go_on() {
    if (holds_ && head_ != posted()) return;
    while (sent_ != posted() && (state == IBV_QPS_RTS || sent_ < begun_)) {
      ModelRequest& request = at(sent_);
      const uint32_t awaited = responses_awaited();
      if ((request.is_read && awaited >= setup_.max_rd_atomic) || (request.is_fenced && awaited != 0)) break;
      if (request.spoiled != VendorError::none) {
        if (sent_ == head_) return fail(request.spoiled);
        break;
      }
      if (link_ == ScriptedLink::kFull && chunks_left_ == 0) return begin_timeout(VendorError::peer_silent);
      begun_ = std::max(begun_, sent_ + 1);
      if (link_ == ScriptedLink::kDown) return begin_timeout(reason_);
      if (chunks_left_ != 0) --chunks_left_;
      begin_timeout(VendorError::peer_silent);
      if (++request.chunks_sent < request.chunks()) continue;
      sent.push_back({sent_, psn_of_request(sent_)});
      request.is_answered = false;
      ++sent_;
    }
    if (head_ < sent_ && link_ == ScriptedLink::kDown) return begin_timeout(reason_);
    notice_drained();
  }

  const QpSetup setup_;
  const uint64_t base_;
  std::vector<ModelRequest> requests_;
  uint64_t head_, sent_;
  uint64_t begun_;         // the first request of which nothing was ever sent
  uint64_t acknowledged_;  // requests below have been carried out
  std::optional<std::pair<uint64_t, VendorError>> refusal_;
  bool holds_ = false, waits_for_receive_ = false, drain_event_due_ = false;
  std::optional<VendorError> timeout_;  // what the head fails for at its deadline
  uint64_t rnr_number_ = 0;
  unsigned rnr_tries_ = 0;
  ScriptedLink link_ = ScriptedLink::kOpen;
  VendorError reason_ = VendorError::none;
  uint32_t chunks_left_ = 0;
};

}  // namespace verbena
