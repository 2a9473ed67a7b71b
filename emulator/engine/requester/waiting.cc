// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/waiting.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/completion/send_completion.h"
#include "engine/events/async_events.h"
#include "engine/objects/transport.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/migration.h"
#include "engine/requester/advance.h"
#include "engine/requester/kept_request.h"
#include "engine/requester/observed_retry.h"
#include "engine/requester/sent_away.h"
#include "engine/responder/refusal.h"
#include "engine/rules/reply.h"
#include "engine/rules/timers.h"
#include "observe/log.h"

namespace verbena {
namespace {

// ns. The same as kShortTick for a request whose peer will wake this process, and for one without an answer.
constexpr int64_t kLongTick = 20'000'000;

// The retries on one path are over: an armed connection goes on with the other one (vol. 1, 17.2.8.1.3).
bool take_alternate_path(Qp& qp) {
  if (!migrate(qp)) return false;
  raise_qp_event(qp, IBV_EVENT_PATH_MIG);
  return true;
}

}  // namespace

Step fail_request(Qp& qp, const SendRequest& request, VendorError error) {
  const auto* text = find_vendor_error(static_cast<uint32_t>(error));
  VERBENA_LOG_AT(LogLevel::kWarn, "QP 0x%06x: %s (wr_id 0x%llx) fails: %s: %s [%s]", qp.shared->qpn,
                 find_send_operation(request.opcode)->name, static_cast<unsigned long long>(request.wr_id),
                 text->name, text->text, text->name);
  explain_unreachable(qp.requester, error);
  observe_request(qp, request, error);
  tell_if_sent_away(qp, request, reply_of(error), error);
  complete_send(qp, request, error);
  qp.sq_next = request.number + 1;
  qp.waiting = Waiting::kNothing;
  if (!is_acknowledged(qp.type))
    enter_send_queue_error(qp);
  else
    enter_error(qp);
  return Step::kFailed;
}

Step wait_for(Qp& qp, const SendRequest& request, Waiting what, VendorError reason, uint64_t patience_ns) {
  if (qp.waiting != what) {
    if (patience_ns == 0 && (what != Waiting::kTransport || !take_alternate_path(qp)))
      return fail_request(qp, request, reason);
    qp.waiting = what;
    qp.give_up_at = deadline_after(patience_ns);
    if (what != Waiting::kAtomicLock) observe_retry(qp, request, next_psn(qp), reason);
  } else if (qp.give_up_at != kEndOfTime && now_ns() >= qp.give_up_at) {
    if (what != Waiting::kTransport || !take_alternate_path(qp)) return fail_request(qp, request, reason);
    qp.give_up_at = deadline_after(patience_ns);
  }
  qp.wait_reason = reason;
  if (what == Waiting::kReceive)
    note_rnr(qp);
  else
    count_one(qp.shared->retries);
  return Step::kWaits;
}

void wait_in_flight(Qp& qp, Waiting what, VendorError reason) {
  if (qp.waiting == Waiting::kNothing || qp.waiting == Waiting::kReceive)
    qp.give_up_at = deadline_after(qp.transport->patience_ns(qp));
  qp.waiting = what;
  qp.wait_reason = reason;
  qp.transport->watch(qp);
}

Step wait_after_progress(Qp& qp) {
  qp.waiting = Waiting::kChunk;
  qp.give_up_at = kEndOfTime;
  return Step::kWaits;
}

void note_rnr(Qp& qp) {
  SharedQp& shared = *qp.shared;
  count_one(shared.rnr_naks);
  const uint64_t done = shared.requests_out.load(std::memory_order_relaxed);
  const uint64_t since = shared.rnr_since.load(std::memory_order_relaxed);
  if (since != 0 && since >= shared.state_since.load(std::memory_order_relaxed) &&
      shared.rnr_requests_out.load(std::memory_order_relaxed) == done)
    return;
  shared.rnr_is_endless.store(rnr_failure_ns(qp.attr.rnr_retry, 0) == kNever ? 1 : 0,
                              std::memory_order_relaxed);
  shared.rnr_requests_out.store(done, std::memory_order_relaxed);
  shared.rnr_since.store(wall_clock_ns(), std::memory_order_release);
}

int64_t retry_at(const Qp& qp, bool from_service, bool asked) {
  if (qp.try_again_at != 0 && !qp.transport->is_synchronous()) return qp.try_again_at;
  if (qp.waiting == Waiting::kChunk)
    return now_ns() + (from_service && qp.transport->is_synchronous() ? 0 : kShortTick);
  const bool slow =
      asked || (from_service && qp.waiting == Waiting::kTransport && qp.transport->is_synchronous());
  int64_t tick = kShortTick;
  if (slow) {
    tick = kLongTick;
    const SharedQp* const there = qp.requester.path.qp;
    if (qp.waiting == Waiting::kReceive && there != nullptr)
      tick = std::max(tick, static_cast<int64_t>(rnr_timer_ns(there->min_rnr_timer)));
  }
  return std::min(now_ns() + tick, qp.give_up_at > now_ns() ? qp.give_up_at : kEndOfTime);
}

int64_t check_deadline(Qp& qp, int64_t now) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (qp.waiting == Waiting::kNothing || (state != IBV_QPS_RTS && state != IBV_QPS_SQD)) return kEndOfTime;
  if (now < qp.give_up_at) return qp.give_up_at == kEndOfTime ? kEndOfTime - 1 : qp.give_up_at;
  if (qp.sq_next == qp.sq_posted || !is_acknowledged(qp.type)) return kEndOfTime;
  if (const int64_t grace = qp.transport->grace_ns(qp, now); now < qp.give_up_at + grace)
    return qp.give_up_at + grace;
  // A stream carries a request once: its timeouts have passed all the same.
  if (qp.waiting == Waiting::kTransport)
    qp.shared->retries.fetch_add(std::max<uint32_t>(qp.attr.retry_cnt, 1), std::memory_order_relaxed);
  fail_request(qp, request_at(qp, qp.sq_next), qp.wait_reason);
  return kEndOfTime;
}

}  // namespace verbena
