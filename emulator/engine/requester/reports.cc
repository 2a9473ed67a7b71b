// SPDX-License-Identifier: BSD-2-Clause
//
// What transports report about requests in flight.
#include <algorithm>

#include "adapter/clock.h"
#include "engine/objects/flight.h"
#include "engine/objects/process.h"
#include "engine/requester/advance.h"
#include "engine/requester/in_flight.h"
#include "engine/requester/kept_request.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/observed_retry.h"
#include "engine/requester/requester.h"
#include "engine/requester/sent_away.h"
#include "engine/requester/waiting.h"
#include "engine/rules/send_rules.h"
#include "engine/rules/timers.h"

namespace verbena {
namespace {

// ns. A responder that is not ready is tried again after this long, then after twice as long, and so on.
constexpr int64_t kFirstPause = 200'000;
constexpr int64_t kLongestPause = 10'000'000;

void await_late_acknowledgement(Qp& qp) {
  if (qp.flight.acknowledged_again_at != 0) [[unlikely]]
    qp.process->scheduler().add(&qp);
}

void continue_sending(Qp& qp) {
  if (progress_send_queue(qp, false) != kEndOfTime) qp.process->scheduler().add(&qp);
}

// Something has come from the peer: requests that waited for it continue.
void go_on(Qp& qp) {
  await_late_acknowledgement(qp);
  if (qp.flight.sent == qp.sq_posted)
    note_drained(qp);
  else
    continue_sending(qp);
}

}  // namespace

void acknowledged(Qp& qp, uint64_t number) {
  note_acknowledged(qp, number);
  if (complete_done(qp)) go_on(qp);
}

void refused(Qp& qp, uint64_t number, VendorError error) {
  if (!is_in_flight(qp, number)) return;
  note_refused(qp, number, error);
  note_acknowledged(qp, number);
  if (complete_done(qp)) await_late_acknowledgement(qp);
}

void not_received(Qp& qp, uint64_t number, uint8_t rnr_timer) {
  Flight& flight = qp.flight;
  if (!is_in_flight(qp, number)) return;
  note_acknowledged(qp, number);
  if (!complete_done(qp)) return;
  if (number == qp.sq_next)
    tell_if_sent_away(qp, request_at(qp, number), Reply::kRnr, VendorError::none, rnr_timer);
  if (flight.rnr_number != number) flight.rnr_tries = 0;
  flight.rnr_number = number;
  note_rnr(qp);
  if (rnr_failure_ns(qp.attr.rnr_retry, rnr_timer) != kNever && flight.rnr_tries >= qp.attr.rnr_retry) {
    note_refused(qp, number, VendorError::no_receive_posted);
    complete_done(qp);
    return;
  }
  ++flight.rnr_tries;
  go_back(qp, number);
  observe_retry(qp, request_at(qp, number), flight.next_psn, VendorError::no_receive_posted);
  qp.waiting = Waiting::kReceive;
  qp.give_up_at = kEndOfTime;
  qp.wait_reason = VendorError::no_receive_posted;
  qp.try_again_at = now_ns() + static_cast<int64_t>(rnr_timer_ns(rnr_timer));
  qp.process->scheduler().add(&qp);
}

// The wait was ended early: it does not count as a retry.
void ready_to_receive(Qp& qp, uint64_t number) {
  Flight& flight = qp.flight;
  if (qp.waiting != Waiting::kReceive || flight.rnr_number != number || qp.try_again_at == 0) return;
  if (flight.rnr_tries != 0) --flight.rnr_tries;
  qp.try_again_at = 0;
  continue_sending(qp);
}

void not_ready(Qp& qp, uint64_t number, VendorError error) {
  Flight& flight = qp.flight;
  // It says nothing of the requests before it: a process without the queue pair replies so to each request.
  if (!is_in_flight(qp, number)) return;
  go_back(qp, number);
  wait_in_flight(qp, Waiting::kTransport, error);
  count_one(qp.shared->retries);
  observe_retry(qp, request_at(qp, number), flight.next_psn, error);
  flight.pause = flight.pause == 0 ? kFirstPause : std::min(2 * flight.pause, kLongestPause);
  qp.try_again_at = now_ns() + flight.pause;
  qp.process->scheduler().add(&qp);
}

SendRequest* find_awaiting_response(Qp& qp, uint64_t number) {
  if (number < qp.sq_next || number >= qp.flight.sent) return nullptr;
  SendRequest& request = request_at(qp, number);
  if (is_local(request.opcode) || request.answered || !brings_response(*find_send_operation(request.opcode)))
    return nullptr;
  return &request;
}

void responded(Qp& qp, SendRequest& request, VendorError error) {
  Flight& flight = qp.flight;
  // A response acknowledges all earlier requests.
  note_acknowledged(qp, request.number);
  if (error != VendorError::none) {
    note_refused(qp, request.number, error);
  } else {
    request.answered = true;
    --flight.responses_awaited;
  }
  if (complete_done(qp)) go_on(qp);
}

}  // namespace verbena
