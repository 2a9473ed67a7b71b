// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/requester.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/objects/flight.h"
#include "engine/objects/process.h"
#include "engine/objects/transport.h"
#include "engine/requester/in_flight.h"
#include "engine/requester/kept_request.h"
#include "engine/requester/starting.h"
#include "engine/requester/waiting.h"
#include "engine/rules/pacing.h"
#include "engine/rules/send_rules.h"

namespace verbena {

Step start_alone(Qp& qp, SendRequest& request) {
  qp.flight.sent = qp.sq_next;
  switch (start_request(qp, request)) {
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
    const Next next = start_request(qp, request_at(qp, flight.sent));
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
