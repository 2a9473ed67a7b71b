// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_path.h"

#include <algorithm>
#include <mutex>

#include "adapter/prefetch.h"
#include "engine/clock.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote.h"
#include "engine/remote/remote_requests.h"
#include "engine/requester/requester.h"
#include "engine/requester/timers.h"
#include "engine/responder/memory_requests.h"

namespace verbena {
namespace {

// A queue pair that has something to send and cannot is looked at this often by the service thread.
constexpr int64_t kTick = 200'000;
// A responder that is not ready is asked again after this long, then twice as long, and so on.
constexpr int64_t kFirstPause = 200'000;
constexpr int64_t kLongestPause = 10'000'000;
// An adapter answers whatever its host's processors are about; here a process has to. One that gets none is given so much
// time beyond what timeout and retry_cnt say, as long as nothing is wrong with the way to it.
constexpr int64_t kUnscheduled = 5'000'000'000;
// A message that nobody acknowledges waits so long for a connection; then it is lost.
constexpr uint64_t kUnacknowledgedPatience = 2'000'000'000;

SendRequest& at(Qp& qp, uint64_t number) { return qp.sq[number & (qp.sq.size() - 1)]; }

uint64_t patience(const Qp& qp) {
  return is_acknowledged(qp.type) ? transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt)
                                  : kUnacknowledgedPatience;
}

// Something is under way, or waits: for how long it may.
void set_deadline(Qp& qp) { qp.give_up_at = deadline_after(patience(qp)); }

void wait_for(Qp& qp, Waiting what) {
  if (qp.waiting == Waiting::kNothing || qp.waiting == Waiting::kReceive) set_deadline(qp);
  qp.waiting = what;
  RemotePath& path = *qp.path.remote;
  if (!path.is_watched) {
    path.is_watched = true;
    path.remote->watch(qp);
  }
}

// Requests from `number` on are sent again.
void go_back(Qp& qp, uint64_t number) {
  RemotePath& path = *qp.path.remote;
  const uint64_t end = std::min(path.sent + 1, qp.sq_posted);
  for (uint64_t n = number; n < end; ++n) {
    SendRequest& request = at(qp, n);
    if (n < path.sent && brings_answer(*find_send_operation(request.opcode)) && !request.answered)
      --path.answers_awaited;
    request.done = 0;
    request.answered = false;
  }
  path.sent = number;
  path.next_psn = qp.send_psn;
  for (uint64_t n = qp.sq_next; n < number; ++n)
    path.next_psn = psn_add(path.next_psn, packets_of(at(qp, n).length, qp.mtu));
  path.acknowledged = std::min(path.acknowledged, number);
}

void finish(Qp& qp, SendRequest& request) {
  advance(qp, request.length, packets_of(request.length, qp.mtu));
  qp.sq_next = request.number + 1;
  RemotePath& path = *qp.path.remote;
  path.pause = 0;
  path.rnr_tries = 0;
  complete_send(qp, request, VendorError::none);
}

bool is_refused(const Qp& qp) {
  const RemotePath& path = *qp.path.remote;
  return path.refused_at != 0 && path.refused_at - 1 == qp.sq_next;
}

// Completes what is done. False: the queue pair has failed.
bool finish_done(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  const uint64_t before = qp.sq_next;
  while (qp.sq_next < path.sent) {
    SendRequest& request = at(qp, qp.sq_next);
    if (is_local(request.opcode)) break;
    const bool answered = brings_answer(*find_send_operation(request.opcode));
    if (answered ? !request.answered : request.number >= path.acknowledged) break;
    finish(qp, request);
  }
  if (is_refused(qp) && qp.sq_next != qp.sq_posted && qp.sq_next < path.begun) {
    fail(qp, at(qp, qp.sq_next), path.refusal);
    return false;
  }
  if (qp.sq_next != before) {
    qp.waiting = qp.sq_next < path.begun ? Waiting::kTransport : Waiting::kNothing;
    if (qp.waiting != Waiting::kNothing) set_deadline(qp);
  }
  return true;
}

bool may_begin(const Qp& qp) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  return state == IBV_QPS_RTS || (state == IBV_QPS_SQD && qp.path.remote->sent < qp.path.remote->begun);
}

// What is wrong with the request itself, before it leaves.
VendorError judge(const Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const VendorError error = check_send_length(send_limits(qp), operation, request.length);
  if (error != VendorError::none) return error;
  return operation.awaits_response && qp.attr.max_rd_atomic == 0 ? VendorError::too_many_outstanding_reads
                                                                 : VendorError::none;
}

// Must it wait for answers to requests before it?
bool waits_for_answers(const Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const uint32_t awaited = qp.path.remote->answers_awaited;
  return (brings_answer(operation) && request.done == 0 && awaited >= qp.attr.max_rd_atomic) ||
         ((request.flags & IBV_SEND_FENCE) != 0 && awaited != 0);
}

void raise_drained_if_due(Qp& qp) {
  if (!qp.drain_event_due || qp.state.load(std::memory_order_relaxed) != IBV_QPS_SQD ||
      qp.sq_next < qp.path.remote->begun)
    return;
  qp.drain_event_due = false;
  qp.waiting = Waiting::kNothing;
  raise_qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

enum class Course : uint8_t { kOn, kWait, kLater, kPaced, kFailed };

// Has its rate been used up for now? Then who waits for the rest of a message waits so much longer.
bool is_held_back(Qp& qp, const SendRequest& request) {
  if (qp.pacing.rate_kbps == 0) [[likely]]
    return false;
  const int64_t until = held_back_until(qp, request, wire::kChunkBytes);
  if (until == 0) return false;
  const uint64_t patient = patience(qp);
  if (request.done != 0 && qp.give_up_at != kEndOfTime)
    qp.give_up_at = patient > static_cast<uint64_t>(kEndOfTime - until) ? kEndOfTime
                                                                         : until + static_cast<int64_t>(patient);
  return true;
}

Course send_next(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  SendRequest& request = at(qp, path.sent);
  const bool is_first = path.sent == qp.sq_next;
  if (is_local(request.opcode)) {
    // Keys change when everything before is done.
    if (!is_first) return Course::kWait;
    switch (carry_out(qp, request)) {
      case Step::kFinished:
        path.sent = qp.sq_next;
        path.begun = std::max(path.begun, path.sent);
        return Course::kOn;
      case Step::kFailed:
        return Course::kFailed;
      case Step::kWaits:
        return Course::kLater;
    }
  }
  const SendOperation& operation = *find_send_operation(request.opcode);
  VendorError error = request.done == 0 ? judge(qp, operation, request) : VendorError::none;
  if (error == VendorError::none && waits_for_answers(qp, operation, request)) return Course::kWait;
  Sent sent = Sent::kFailed;
  const uint32_t done_before = request.done;
  if (error == VendorError::none && is_held_back(qp, request)) return Course::kPaced;
  if (error == VendorError::none) sent = send_request(qp, operation, request, &error);
  if (qp.pacing.rate_kbps != 0 && (sent == Sent::kWhole || sent == Sent::kPart))
    charge_for(qp, request, (sent == Sent::kWhole ? request.length : request.done) - done_before);
  if (sent == Sent::kFailed) {
    // Those before it complete before it does.
    if (!is_first) return Course::kWait;
    fail(qp, request, error);
    return Course::kFailed;
  }
  if (sent == Sent::kBlocked) {
    wait_for(qp, Waiting::kChunk);
    return Course::kLater;
  }
  path.begun = std::max(path.begun, path.sent + 1);
  if (sent == Sent::kPart) {
    wait_for(qp, Waiting::kChunk);
    if (path.pause == 0) set_deadline(qp);
    return Course::kOn;
  }
  if (brings_answer(operation)) ++path.answers_awaited, request.done = 0;
  request.answered = false;
  path.next_psn = psn_add(path.next_psn, packets_of(request.length, qp.mtu));
  ++path.sent;
  if (is_acknowledged(qp.type)) {
    wait_for(qp, Waiting::kTransport);
  } else {
    qp.waiting = Waiting::kNothing;
    finish(qp, request);
  }
  return Course::kOn;
}

// Nobody is there to send to. False: unacknowledged messages have waited long enough, and are lost.
bool wait_for_connection(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  qp.wait_reason = path.peer && path.peer->gone ? VendorError::peer_gone : VendorError::no_path;
  wait_for(qp, Waiting::kTransport);
  // An adapter has sent it by now: in SQD it is one that is under way.
  if (is_acknowledged(qp.type)) path.begun = std::max(path.begun, std::min(path.sent + 1, qp.sq_posted));
  path.remote->seek(qp.shared->qpn);
  return is_acknowledged(qp.type) || now_ns() < qp.give_up_at;
}

}  // namespace

void expect_request(const Qp& qp, uint64_t number) {
  const RemotePath& path = *qp.path.remote;
  prefetch(&path.peer, &path.is_called + 1);
  prefetch(&qp.send_lock, &qp.carrier + 1);
  prefetch(&qp.attr.timeout);
  prefetch(&qp.shared->responder_state);
  prefetch(&qp.shared->requests_out);
  if (qp.sq.empty()) return;
  const uint64_t place = number & (qp.sq.size() - 1);
  prefetch(qp.sq.data() + place, qp.sq.data() + place + 1);
  prefetch(qp.sq_sges.data() + place * qp.cap.max_send_sge);
  prefetch(qp.sq_inline.data() + place * qp.sq_inline_stride);
}

int64_t progress_remote(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  path.sent = std::max(path.sent, qp.sq_next);
  RemotePeer* const peer = path.peer.get();
  const bool connected = peer != nullptr && peer->connected.load(std::memory_order_acquire);
  if (connected && path.epoch != peer->epoch.load(std::memory_order_acquire)) {
    path.epoch = peer->epoch.load(std::memory_order_acquire);
    // An unacknowledged one that had gone as a whole may have arrived.
    const bool gone = path.sent != qp.sq_posted && at(qp, path.sent).done != 0 &&
                      at(qp, path.sent).done == at(qp, path.sent).length;
    go_back(qp, qp.sq_next);
    path.send_again_at = 0;
    if (gone) finish(qp, at(qp, path.sent++));
  }
  if (path.send_again_at != 0 && qp.sq_next != qp.sq_posted) {
    if (now_ns() < path.send_again_at) return path.send_again_at;
    path.send_again_at = 0;
  }
  while (path.sent != qp.sq_posted && may_begin(qp)) {
    const bool here = is_local(at(qp, path.sent).opcode);
    if (!here && !ports_up(qp)) {
      qp.wait_reason = VendorError::port_down;
      wait_for(qp, Waiting::kTransport);
      return now_ns() + kTick;
    }
    if (!here && !connected) {
      if (wait_for_connection(qp)) return now_ns() + kTick;
      qp.shared->lost.fetch_add(1, std::memory_order_relaxed);
      finish(qp, at(qp, path.sent++));
      continue;
    }
    switch (send_next(qp)) {
      case Course::kOn:
        continue;
      case Course::kLater:
        return now_ns() + kTick;
      case Course::kPaced:
        return qp.pacing.held_until;
      case Course::kFailed:
        return kEndOfTime;
      case Course::kWait:
        break;
    }
    break;
  }
  if (!connected && qp.sq_next < path.begun && may_begin(qp) && is_acknowledged(qp.type)) {
    wait_for_connection(qp);
    return now_ns() + kTick;
  }
  raise_drained_if_due(qp);
  return kEndOfTime;
}

void post_remote(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  // Those before it wait, on the list of what does, and so does it.
  if (path.sent + 1 < qp.sq_posted && (qp.waiting == Waiting::kChunk || qp.waiting == Waiting::kReceive))
    return;
  if (progress_remote(qp) != kEndOfTime) qp.process->add_pending(&qp);
}

namespace {

// After something has come: what had to wait for it.
void carry_on(Qp& qp) {
  RemotePath& path = *qp.path.remote;
  if (path.sent == qp.sq_posted) {
    raise_drained_if_due(qp);
    return;
  }
  if (progress_remote(qp) != kEndOfTime) qp.process->add_pending(&qp);
}

bool is_in_flight(const Qp& qp, uint64_t number) {
  return number >= qp.sq_next && number < qp.path.remote->begun && number < qp.sq_posted;
}

}  // namespace

void take_acknowledgement(Qp& qp, uint64_t number) {
  RemotePath& path = *qp.path.remote;
  path.acknowledged = std::max(path.acknowledged, std::min(number, path.sent));
  if (finish_done(qp)) carry_on(qp);
}

void take_refusal(Qp& qp, uint64_t number, uint32_t vendor_error) {
  RemotePath& path = *qp.path.remote;
  if (!is_in_flight(qp, number)) return;
  path.refused_at = number + 1;
  path.refusal = find_vendor_error(vendor_error)->error;
  if (path.refusal == VendorError::none) path.refusal = VendorError::remote_operation_failed;
  path.acknowledged = std::max(path.acknowledged, std::min(number, path.sent));
  finish_done(qp);
}

void take_rnr(Qp& qp, uint64_t number, uint8_t rnr_timer) {
  RemotePath& path = *qp.path.remote;
  if (!is_in_flight(qp, number)) return;
  path.acknowledged = std::max(path.acknowledged, std::min(number, path.sent));
  if (!finish_done(qp)) return;
  if (path.rnr_number != number) path.rnr_tries = 0;
  path.rnr_number = number;
  constexpr uint8_t kForever = 7;
  qp.shared->rnr_naks.store(qp.shared->rnr_naks.load(std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
  if (qp.attr.rnr_retry != kForever && path.rnr_tries >= qp.attr.rnr_retry) {
    path.refused_at = number + 1;
    path.refusal = VendorError::no_receive_posted;
    finish_done(qp);
    return;
  }
  ++path.rnr_tries;
  go_back(qp, number);
  qp.waiting = Waiting::kReceive;
  qp.give_up_at = kEndOfTime;
  qp.wait_reason = VendorError::no_receive_posted;
  path.send_again_at = now_ns() + static_cast<int64_t>(rnr_timer_ns(rnr_timer));
  qp.process->add_pending(&qp);
}

// Woken before its time: that was no try.
void take_ready(Qp& qp, uint64_t number) {
  RemotePath& path = *qp.path.remote;
  if (qp.waiting != Waiting::kReceive || path.rnr_number != number || path.send_again_at == 0) return;
  if (path.rnr_tries != 0) --path.rnr_tries;
  path.send_again_at = 0;
  if (progress_remote(qp) != kEndOfTime) qp.process->add_pending(&qp);
}

void take_not_ready(Qp& qp, uint64_t number, uint32_t vendor_error) {
  RemotePath& path = *qp.path.remote;
  if (!is_in_flight(qp, number)) return;
  path.acknowledged = std::max(path.acknowledged, std::min(number, path.sent));
  if (!finish_done(qp)) return;
  go_back(qp, number);
  qp.wait_reason = find_vendor_error(vendor_error)->error;
  if (qp.wait_reason == VendorError::none) qp.wait_reason = VendorError::peer_not_ready;
  wait_for(qp, Waiting::kTransport);
  qp.shared->retries.store(qp.shared->retries.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  path.pause = path.pause == 0 ? kFirstPause : std::min(2 * path.pause, kLongestPause);
  path.send_again_at = now_ns() + path.pause;
  qp.process->add_pending(&qp);
}

SendRequest* find_awaiting(Qp& qp, uint64_t number) {
  if (number < qp.sq_next || number >= qp.path.remote->sent) return nullptr;
  SendRequest& request = at(qp, number);
  if (is_local(request.opcode) || request.answered || !brings_answer(*find_send_operation(request.opcode)))
    return nullptr;
  return &request;
}

void take_answer(Qp& qp, SendRequest& request, VendorError error) {
  RemotePath& path = *qp.path.remote;
  // An answer says that everything before it has been taken.
  path.acknowledged = std::max(path.acknowledged, std::min(request.number, path.sent));
  if (error != VendorError::none) {
    path.refused_at = request.number + 1;
    path.refusal = error;
  } else {
    request.answered = true;
    --path.answers_awaited;
  }
  if (finish_done(qp)) carry_on(qp);
}

int64_t check_deadline(Qp& qp, int64_t now) {
  RemotePath& path = *qp.path.remote;
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (qp.waiting == Waiting::kNothing || (state != IBV_QPS_RTS && state != IBV_QPS_SQD)) return kEndOfTime;
  if (now < qp.give_up_at) return qp.give_up_at == kEndOfTime ? kEndOfTime - 1 : qp.give_up_at;
  if (qp.sq_next == qp.sq_posted || !is_acknowledged(qp.type)) return kEndOfTime;
  const bool silent = path.peer && path.peer->connected.load() && path.send_again_at == 0;
  if (silent && now < qp.give_up_at + kUnscheduled) {
    std::lock_guard out(path.peer->out_mutex);
    if (is_way_sound(*path.peer)) return qp.give_up_at + kUnscheduled;
  }
  // Nor would an adapter have to be connected first.
  const bool called =
      qp.wait_reason == VendorError::no_path && path.is_called.load(std::memory_order_relaxed);
  if (!silent && called && now < qp.give_up_at + kUnscheduled) return qp.give_up_at + kUnscheduled;
  fail(qp, at(qp, qp.sq_next), silent ? VendorError::peer_silent : qp.wait_reason);
  return kEndOfTime;
}

}  // namespace verbena
