// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/requester.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/completion/send_completion.h"
#include "engine/objects/flight.h"
#include "engine/objects/process.h"
#include "engine/objects/transport.h"
#include "engine/requester/in_flight.h"
#include "engine/requester/injected.h"
#include "engine/requester/kept_request.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/rate_limit.h"
#include "engine/requester/send_limits.h"
#include "engine/requester/waiting.h"
#include "engine/rules/pacing.h"
#include "engine/rules/timers.h"

namespace verbena {
namespace {

// ns. A request that found no receive WQE is not tried again sooner. Meanwhile the peer posts several, and
// one cache line does not bounce between the two.
constexpr int64_t kReceivePause = 5'000;
// ns. Atomics hold the lock of a word for a moment. If a requester never gets the lock, its holder is
// stopped, or the lock is damaged: that counts as a silent responder.
constexpr uint64_t kLongestBusy = 1'000'000'000;

// ---- one request ----

// BIND_MW and LOCAL_INV need no peer, and no PSN.
Step carry_out_here(Qp& qp, const SendRequest& request) {
  const Response response = carry_out_locally(qp, request);
  if (response.answer == Answer::kLocal) return fail_request(qp, request, response.error);
  if (response.answer == Answer::kBusy) {
    qp.waiting = Waiting::kAtomicLock;
    qp.give_up_at = kEndOfTime;
    return Step::kWaits;
  }
  qp.waiting = Waiting::kNothing;
  qp.sq_next = request.number + 1;
  observe_request(qp, request, VendorError::none);
  complete_send(qp, request, VendorError::none);
  return Step::kFinished;
}

// What is wrong with the request itself, before it is sent.
VendorError judge(const Qp& qp, const SendOperation& operation, const SendRequest& request) {
  if (request.done != 0) return VendorError::none;
  const VendorError error = check_send_length(send_limits(qp), operation, request.length);
  if (error != VendorError::none) return error;
  return operation.awaits_response && qp.attr.max_rd_atomic == 0 ? VendorError::too_many_outstanding_reads
                                                                 : VendorError::none;
}

// Must it wait for the responses to earlier requests: is it fenced, or are max_rd_atomic in flight?
bool waits_for_responses(const Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const uint32_t awaited = qp.flight.responses_awaited;
  return (brings_response(operation) && request.done == 0 && awaited >= qp.attr.max_rd_atomic) ||
         ((request.flags & IBV_SEND_FENCE) != 0 && awaited != 0);
}

// Has the rate of the queue pair been used up for now? Then the deadline of a message that has begun is
// extended.
bool is_held_back(Qp& qp, const SendRequest& request) {
  if (qp.pacing.rate_kbps == 0) [[likely]]
    return false;
  const int64_t until = held_back_until(qp, request, qp.transport->chunk_size());
  if (until == 0) return false;
  if (request.done != 0 && qp.give_up_at != kEndOfTime) {
    const uint64_t patience = qp.transport->patience_ns(qp);
    qp.give_up_at = patience > static_cast<uint64_t>(kEndOfTime - until)
                        ? kEndOfTime
                        : until + static_cast<int64_t>(patience);
  }
  return true;
}

// What the requester does after one send().
enum class Next : uint8_t {
  kOn,      // with the next request, or chunk
  kFailed,  // the queue pair has failed
  kStop,    // until something comes from the peer
  kLater,   // until the time that retry_at() says
  kPaced,
  kDropped,  // of inject(): the request is complete
};

Next next_after(Step step) {
  return step == Step::kFinished ? Next::kOn : step == Step::kFailed ? Next::kFailed : Next::kLater;
}

// Acts on the result of Transport::send().
Next take_result(Qp& qp, const SendOperation& operation, SendRequest& request, const SendResult& result) {
  Flight& flight = qp.flight;
  const bool is_first = request.number == qp.sq_next;
  const bool leaves = result.outcome != SendOutcome::kBlocked && result.outcome != SendOutcome::kFailed &&
                      (result.outcome != SendOutcome::kUnreachable || is_acknowledged(qp.type));
  if (leaves) flight.begun = std::max(flight.begun, request.number + 1);
  switch (result.outcome) {
    case SendOutcome::kCompleted:
      return Next::kOn;
    case SendOutcome::kSent:
      if (brings_response(operation)) ++flight.responses_awaited, request.done = 0;
      request.answered = false;
      flight.next_psn = psn_add(next_psn(qp), packets_of(request.length, qp.requester.mtu));
      ++flight.sent;
      wait_in_flight(qp, Waiting::kTransport, VendorError::peer_silent);
      return Next::kOn;
    case SendOutcome::kPart:
      wait_in_flight(qp, Waiting::kChunk, VendorError::peer_silent);
      if (flight.pause == 0) qp.give_up_at = deadline_after(qp.transport->patience_ns(qp));
      return Next::kOn;
    case SendOutcome::kYield:
      return next_after(wait_after_progress(qp));
    case SendOutcome::kBlocked:
      wait_in_flight(qp, Waiting::kChunk, VendorError::peer_silent);
      return Next::kLater;
    case SendOutcome::kBusy:
      return next_after(wait_for(qp, request, Waiting::kAtomicLock, VendorError::peer_silent,
                                 std::max(kLongestBusy, qp.transport->patience_ns(qp))));
    case SendOutcome::kRnr:
      qp.try_again_at = now_ns() + kReceivePause;
      return next_after(wait_for(qp, request, Waiting::kReceive, VendorError::no_receive_posted,
                                 rnr_failure_ns(qp.attr.rnr_retry, result.rnr_timer)));
    case SendOutcome::kFailed:
      // It fails after the requests before it have completed.
      return is_first ? next_after(fail_request(qp, request, result.error)) : Next::kStop;
    case SendOutcome::kUnreachable:
      if (qp.transport->is_synchronous())
        return next_after(wait_for(qp, request, Waiting::kTransport, result.error,
                                   std::max(qp.transport->patience_ns(qp), result.patience_ns)));
      wait_in_flight(qp, Waiting::kTransport, result.error);
      return Next::kLater;
  }
  return Next::kStop;
}

// Faults on purpose. kOn: the request starts as usual.
Next inject(Qp& qp, const SendOperation& operation, SendRequest& request, faults::Injection& injection) {
  const faults::Verdict verdict = injected_verdict(qp, request, injection);
  switch (verdict.kind) {
    case faults::Verdict::Kind::kGo:
      return Next::kOn;
    case faults::Verdict::Kind::kHold:
      qp.pacing.held_until = verdict.until;
      return Next::kPaced;
    case faults::Verdict::Kind::kDrop:
      complete_request(qp, request);
      return Next::kDropped;
    case faults::Verdict::Kind::kRnr:
      return take_result(qp, operation, request, {SendOutcome::kRnr});
    case faults::Verdict::Kind::kFail:
      return take_result(qp, operation, request,
                         {SendOutcome::kFailed, static_cast<VendorError>(verdict.vendor_err)});
  }
  return Next::kOn;
}

Next start(Qp& qp, SendRequest& request) {
  const bool is_first = request.number == qp.sq_next;
  if (is_local(request.opcode)) {
    // Keys change when all earlier requests are done.
    if (!is_first) return Next::kStop;
    qp.flight.begun = std::max(qp.flight.begun, request.number + 1);
    return next_after(carry_out_here(qp, request));
  }
  const SendOperation& operation = *find_send_operation(request.opcode);
  if (const VendorError error = judge(qp, operation, request); error != VendorError::none)
    return is_first ? next_after(fail_request(qp, request, error)) : Next::kStop;
  if (waits_for_responses(qp, operation, request)) return Next::kStop;
  if (is_held_back(qp, request)) return Next::kPaced;
  if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]]
    if (const Next next = inject(qp, operation, request, *injection); next != Next::kOn)
      return next == Next::kDropped ? Next::kOn : next;
  const uint32_t before = request.done, length = request.length;
  const SendResult result = qp.transport->send(qp, operation, request);
  if (qp.pacing.rate_kbps != 0) [[unlikely]] {
    if (result.outcome == SendOutcome::kCompleted || result.outcome == SendOutcome::kSent)
      charge_for(qp, request, length - before);
    else if (request.done > before)
      charge_for(qp, request, request.done - before);
  }
  return take_result(qp, operation, request, result);
}

bool may_begin(const Qp& qp) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  return state == IBV_QPS_RTS || (state == IBV_QPS_SQD && qp.flight.sent < qp.flight.begun);
}

// The path has been replaced: what was in flight is sent again.
void send_again_if_replaced(Qp& qp) {
  const int arrived = qp.transport->was_replaced(qp);
  if (arrived == Transport::kSamePath) return;
  go_back(qp, qp.sq_next);
  qp.try_again_at = 0;
  for (int i = 0; i < arrived; ++i) complete_request(qp, request_at(qp, qp.sq_next));
}

}  // namespace

// ---- the program and the scheduler ----

Step start_alone(Qp& qp, SendRequest& request) {
  qp.flight.sent = qp.sq_next;
  switch (start(qp, request)) {
    case Next::kOn:
      return Step::kFinished;
    case Next::kFailed:
      return Step::kFailed;
    default:
      return Step::kWaits;
  }
}

void start_kept(Qp& qp) {
  const bool is_alone = qp.flight.sent + 1 >= qp.sq_posted;
  // Earlier requests wait. The scheduler has the queue pair already.
  if (!is_alone && (qp.waiting == Waiting::kChunk || qp.waiting == Waiting::kReceive)) return;
  if (qp.transport->is_synchronous()) return qp.process->scheduler().add(&qp);
  if (progress_send_queue(qp, false) != kEndOfTime) qp.process->scheduler().add(&qp);
}

namespace {

// False: the queue pair has failed.
bool take_late_acknowledgement(Qp& qp) {
  int64_t& at = qp.flight.acknowledged_again_at;
  if (at == 0 || now_ns() < at) return true;
  at = 0;
  return complete_done(qp);
}

int64_t send_what_may_go(Qp& qp, bool from_service) {
  Flight& flight = qp.flight;
  Transport& transport = *qp.transport;
  flight.sent = std::max(flight.sent, qp.sq_next);
  send_again_if_replaced(qp);
  if (qp.try_again_at != 0 && qp.sq_next != qp.sq_posted) {
    // Within the node the service thread may look earlier: that costs the peer next to nothing.
    const bool looks_early = from_service && transport.is_synchronous();
    if (!looks_early && now_ns() < qp.try_again_at) return qp.try_again_at;
  }
  qp.try_again_at = 0;
  while (flight.sent != qp.sq_posted && may_begin(qp)) {
    // A peer that posts a receive WQE reads the request to be woken without a fence, and may miss it. So this
    // process tries once more soon, before it relies on being woken.
    const bool asks = from_service && qp.waiting == Waiting::kReceive;
    const bool just_asked = asks && !(qp.wakeup_asked && transport.is_wakeup_pending(qp));
    if (just_asked) qp.wakeup_asked = transport.ask_for_wakeup(qp);
    const Next next = start(qp, request_at(qp, flight.sent));
    if (next == Next::kOn || next == Next::kFailed) {
      qp.wakeup_asked = false;
      flight.sent = std::max(flight.sent, qp.sq_next);
      if (next == Next::kFailed) return kEndOfTime;
      continue;
    }
    if (next == Next::kPaced) return qp.pacing.held_until;
    if (next == Next::kLater) return retry_at(qp, from_service, qp.wakeup_asked && !just_asked);
    break;
  }
  if (qp.sq_next < flight.begun && qp.sq_next < flight.sent && is_acknowledged(qp.type))
    if (const VendorError error = transport.find_path(qp); error != VendorError::none) {
      wait_in_flight(qp, Waiting::kTransport, error);
      return now_ns() + kShortTick;
    }
  note_drained(qp);
  return kEndOfTime;
}

}  // namespace

int64_t progress_send_queue(Qp& qp, bool from_service) {
  if (!take_late_acknowledgement(qp)) return kEndOfTime;
  const int64_t again = send_what_may_go(qp, from_service);
  const int64_t acknowledged = qp.flight.acknowledged_again_at;
  return acknowledged == 0 ? again : std::min(again, acknowledged);
}

}  // namespace verbena
