// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/starting.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/completion/send_completion.h"
#include "engine/objects/flight.h"
#include "engine/objects/transport.h"
#include "engine/requester/injected.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/rate_limit.h"
#include "engine/requester/send_limits.h"
#include "engine/requester/waiting.h"
#include "engine/rules/pacing.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"
#include "engine/rules/timers.h"

namespace verbena {
namespace {

// ns. A request that found no receive WQE is not tried again sooner. Meanwhile the peer posts several, and
// one cache line does not bounce between the two.
constexpr int64_t kReceivePause = 5'000;
// ns. Atomics hold the lock of a word for a moment. If a requester never gets the lock, its holder is
// stopped, or the lock is damaged: that counts as a silent responder.
constexpr uint64_t kLongestBusy = 1'000'000'000;

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

}  // namespace

Next start_request(Qp& qp, SendRequest& request) {
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

}  // namespace verbena
