// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/in_flight.h"

#include <algorithm>

#include "engine/completion/send_completion.h"
#include "engine/events/async_events.h"
#include "engine/objects/flight.h"
#include "engine/requester/advance.h"
#include "engine/requester/injected.h"
#include "engine/requester/kept_request.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/requester.h"
#include "engine/requester/sent_away.h"
#include "engine/requester/waiting.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"

namespace verbena {

void go_back(Qp& qp, uint64_t number) {
  Flight& flight = qp.flight;
  const uint64_t end = std::min(flight.sent + 1, qp.sq_posted);
  for (uint64_t n = number; n < end; ++n) {
    SendRequest& request = request_at(qp, n);
    if (n < flight.sent && brings_response(*find_send_operation(request.opcode)) && !request.answered)
      --flight.responses_awaited;
    request.done = 0;
    request.answered = false;
  }
  flight.sent = number;
  flight.next_psn = qp.requester.psn;
  for (uint64_t n = qp.sq_next; n < number; ++n)
    flight.next_psn = psn_add(flight.next_psn, packets_of(request_at(qp, n).length, qp.requester.mtu));
  flight.acknowledged = std::min(flight.acknowledged, number);
}

bool is_in_flight(Qp& qp, uint64_t number) {
  const uint64_t sent = qp.flight.sent;
  return number >= qp.sq_next && number < qp.sq_posted &&
         (number < sent || (number == sent && request_at(qp, number).done != 0));
}

void note_acknowledged(Qp& qp, uint64_t number) {
  Flight& flight = qp.flight;
  flight.acknowledged = std::max(flight.acknowledged, std::min(number, flight.sent));
}

void note_refused(Qp& qp, uint64_t number, VendorError error) {
  Flight& flight = qp.flight;
  if (flight.refused_at != 0 && flight.refused_at <= number + 1) return;
  flight.refused_at = number + 1;
  flight.refusal = error;
}

namespace {

// Faults on purpose. True: the acknowledgement of the request, which has come, is lost, and none of a later
// request has come, which would stand for it.
bool loses_acknowledgement(Qp& qp, const SendRequest& request, bool awaits_response,
                           faults::Injection& injection) {
  Flight& flight = qp.flight;
  if (flight.acknowledged > request.number + 1 && !awaits_response) return false;
  const faults::Verdict verdict = acknowledgement_verdict(qp, request, injection);
  if (verdict.kind == faults::Verdict::Kind::kGo) return false;
  if (verdict.kind == faults::Verdict::Kind::kFail)
    note_refused(qp, request.number, static_cast<VendorError>(verdict.vendor_err));
  if (verdict.kind == faults::Verdict::Kind::kHold) flight.acknowledged_again_at = verdict.until;
  return true;
}

}  // namespace

bool complete_done(Qp& qp) {
  Flight& flight = qp.flight;
  const uint64_t before = qp.sq_next;
  const bool awaits_receive = qp.waiting == Waiting::kReceive;
  // A refusal is final, whatever is said of the request or of later ones afterwards.
  while (qp.sq_next < flight.sent && qp.sq_next + 1 != flight.refused_at) {
    SendRequest& request = request_at(qp, qp.sq_next);
    if (is_local(request.opcode)) break;
    const bool awaits_response = brings_response(*find_send_operation(request.opcode));
    if (awaits_response ? !request.answered : request.number >= flight.acknowledged) break;
    if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]]
      if (loses_acknowledgement(qp, request, awaits_response, *injection)) break;
    complete_request(qp, request);
  }
  const bool is_refused = flight.refused_at == qp.sq_next + 1;
  if (is_refused && qp.sq_next != qp.sq_posted && qp.sq_next < flight.begun) {
    fail_request(qp, request_at(qp, qp.sq_next), flight.refusal);
    return false;
  }
  if (qp.sq_next == before || qp.sq_next >= flight.begun) return true;
  // The request that met no receive WQE goes on waiting for one, without a timeout.
  if (awaits_receive)
    qp.waiting = Waiting::kReceive;
  else
    wait_in_flight(qp, Waiting::kTransport, VendorError::peer_silent);
  return true;
}

void note_drained(Qp& qp) {
  if (qp.state.load(std::memory_order_relaxed) != IBV_QPS_SQD || qp.sq_next < qp.flight.begun) return;
  qp.waiting = Waiting::kNothing;
  if (!qp.drain_event_due) return;
  qp.drain_event_due = false;
  raise_qp_event(qp, IBV_EVENT_SQ_DRAINED);
}

// ---- requester.h ----

void begin_flight(Qp& qp) {
  qp.flight = {};
  qp.flight.sent = qp.flight.begun = qp.flight.acknowledged = qp.sq_posted;
  qp.try_again_at = 0;
}

uint32_t next_psn(const Qp& qp) {
  return qp.flight.sent <= qp.sq_next ? qp.requester.psn : qp.flight.next_psn;
}

bool finish_request(Qp& qp, const SendRequest& request, bool to_group) {
  observe_request(qp, request, VendorError::none);
  tell_if_sent_away(qp, request, Reply::kAcknowledged, VendorError::none);
  qp.waiting = Waiting::kNothing;
  const Passing passing =
      to_group ? Passing::kToGroup : passing_of(brings_response(*find_send_operation(request.opcode)));
  advance(qp, passing, request.length, packets_of(request.length, qp.requester.mtu));
  qp.sq_next = request.number + 1;
  Flight& flight = qp.flight;
  flight.sent = std::max(flight.sent, qp.sq_next);
  flight.pause = 0;
  flight.rnr_tries = 0;
  if (request.tag != 0) [[unlikely]]
    complete_own(qp, request, VendorError::none);
  if (!is_signaled(qp, request)) return false;
  append_send_completion(qp, {request.wr_id, request.number, request.opcode, request.length});
  return true;
}

void complete_request(Qp& qp, const SendRequest& request) {
  if (finish_request(qp, request)) raise_send_event(qp, false);
}

}  // namespace verbena
