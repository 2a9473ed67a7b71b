// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/injected.h"

#include "adapter/clock.h"
#include "adapter/layout.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/requester/advance.h"
#include "engine/requester/observed_retry.h"
#include "engine/requester/requester.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/send_rules.h"
#include "engine/rules/timers.h"

namespace verbena {

namespace {

faults::RequestFacts facts_of(const Qp& qp, const SendRequest& request) {
  const uint64_t timeout = ack_timeout_ns(qp.attr.timeout);
  faults::RequestFacts facts;
  facts.qp = qp.index;
  facts.incarnation = qp.shared->incarnation;
  facts.number = request.number;
  facts.opcode = number_in(request.opcode);
  facts.length = request.length;
  facts.is_acknowledged = is_acknowledged(qp.type);
  facts.takes_receive = find_send_operation(request.opcode)->consumes_receive;
  facts.timeout_ns = timeout == kNever ? 0 : timeout;
  facts.retry_cnt = qp.attr.retry_cnt;
  facts.rnr_retry = qp.attr.rnr_retry;
  return facts;
}

// The request, whose first packet has the PSN `psn`, is to be sent again.
void note_loss(const Qp& qp, const SendRequest& request, uint32_t psn) {
  count_one(qp.shared->retries);
  observe_retry(qp, request, psn, VendorError::peer_silent);
}

}  // namespace

faults::Verdict injected_verdict(const Qp& qp, const SendRequest& request, faults::Injection& injection) {
  if (request.done != 0) return {};  // it has begun
  const faults::Verdict verdict = injection.on_request(facts_of(qp, request), now_ns());
  if (verdict.was_lost && is_acknowledged(qp.type)) note_loss(qp, request, next_psn(qp));
  if (verdict.was_lost && !is_acknowledged(qp.type)) count_one(qp.shared->lost);
  return verdict;
}

faults::Verdict acknowledgement_verdict(const Qp& qp, const SendRequest& request,
                                        faults::Injection& injection) {
  const faults::Verdict verdict = injection.on_acknowledgement(facts_of(qp, request), now_ns());
  if (verdict.was_lost) note_loss(qp, request, qp.requester.psn);
  return verdict;
}

bool acknowledgement_is_lost(Qp& qp, SendRequest& request, faults::Injection& injection) {
  if (!injection.loses_ack(facts_of(qp, request), now_ns())) return false;
  request.done = 0;
  note_loss(qp, request, qp.requester.psn);
  return true;
}

}  // namespace verbena
