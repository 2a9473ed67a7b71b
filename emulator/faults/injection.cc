// SPDX-License-Identifier: BSD-2-Clause
#include "faults/injection.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "faults/draw.h"

namespace verbena::faults {
namespace {

// A loss costs the program its timeout. Longer ones would make a run of chaos a test of patience.
constexpr uint64_t kLongestLegalTimeout = 200'000'000;
// ns. The send queue goes on with the next request in less time.
constexpr int64_t kAtOnce = 2'000;

void grow(auto& list, size_t index) {
  if (list.size() <= index) list.resize(index + 1);
}

}  // namespace

Injection::Injection(const Plan& plan, int64_t now, uint32_t lost_error)
    : plan_(plan), began_(now), lost_error_(lost_error), rules_(plan.rules.size()) {}

bool Injection::happens(size_t index, const Event& event, int64_t now) {
  const Rule& rule = plan_.rules[index];
  RuleState& state = rules_[index];
  const auto passed = static_cast<uint64_t>(now - began_);
  if ((rule.object != kAny && rule.object != event.object) ||
      (rule.opcode != kAny && rule.opcode != event.opcode) || passed < rule.from_ns ||
      passed >= rule.until_ns)
    return false;
  ++state.seen;
  if ((rule.nth != 0 && state.seen != rule.nth) || (rule.every != 0 && state.seen % rule.every != 0) ||
      state.done >= rule.times)
    return false;
  if (rule.probability < 1 &&
      fraction(draw({plan_.seed, index, event.object, event.number, event.attempt})) >= rule.probability)
    return false;
  ++state.done;
  return true;
}

uint64_t Injection::duration(size_t index, const Event& event) const {
  const Rule& rule = plan_.rules[index];
  return between(rule.least_ns, rule.most_ns, draw({plan_.seed, ~index, event.object, event.number}));
}

void Injection::take_link(QpState& qp, const RequestFacts& request, int64_t now) {
  const Link& link = plan_.link;
  if (link.bits_per_second == 0 && link.latency_ns == 0) return;
  const uint64_t bits = uint64_t{request.length} * 8;
  const auto transfer =
      link.bits_per_second == 0
          ? 0
          : static_cast<int64_t>(static_cast<double>(bits) * 1e9 / static_cast<double>(link.bits_per_second));
  // A request that waited behind the one before it was on the link meanwhile.
  const bool was_queued = now - qp.went_at < kAtOnce;
  qp.link_free_at = (was_queued ? qp.link_free_at : std::max(qp.link_free_at, now)) + transfer;
  qp.until = std::max(qp.until, qp.link_free_at + static_cast<int64_t>(link.latency_ns));
}

bool Injection::may_be_lost(uint32_t losses, const RequestFacts& request) const {
  return !plan_.only_legal || (request.is_acknowledged && request.timeout_ns != 0 &&
                               request.timeout_ns <= kLongestLegalTimeout && losses < request.retry_cnt);
}

// A request, or its acknowledgement, is lost: it is sent again after its timeout. False: that was the last
// time.
bool Injection::note_lost(QpState& qp, const RequestFacts& request, int64_t now) {
  ++qp.losses;
  ++qp.attempt;
  qp.until = request.timeout_ns == 0 ? INT64_MAX : now + static_cast<int64_t>(request.timeout_ns);
  return request.timeout_ns == 0 || qp.losses <= request.retry_cnt;
}

// One attempt to send the request.
Verdict Injection::judge(QpState& qp, const RequestFacts& request, int64_t now) {
  const Event event{request.qp, request.opcode, request.number, qp.attempt};
  const bool may_be_rnr = request.is_acknowledged && request.takes_receive &&
                          (!plan_.only_legal || request.rnr_retry == 7 || qp.rnrs < request.rnr_retry);
  Verdict verdict;
  for (size_t i = 0; i < plan_.rules.size() && verdict.kind == Verdict::Kind::kGo; ++i) {
    switch (plan_.rules[i].what) {
      case Fault::kDelay:
        if (qp.attempt == 0 && happens(i, event, now))
          qp.until = std::max(qp.until, now + static_cast<int64_t>(duration(i, event)));
        break;
      case Fault::kLose:
        if (!may_be_lost(qp.losses, request) || !happens(i, event, now)) break;
        if (!request.is_acknowledged) {
          ++qp.losses;
          ++qp.attempt;
          return {Verdict::Kind::kDrop, 0, 0, true};
        }
        if (!note_lost(qp, request, now)) return {Verdict::Kind::kFail, 0, lost_error_, true};
        return {Verdict::Kind::kHold, qp.until, 0, true};
      case Fault::kRnr:
        if (!may_be_rnr || !happens(i, event, now)) break;
        ++qp.rnrs;
        ++qp.attempt;
        verdict.kind = Verdict::Kind::kRnr;
        break;
      case Fault::kFail:
        if (qp.attempt == 0 && happens(i, event, now))
          return {Verdict::Kind::kFail, 0, plan_.rules[i].vendor_err, false};
        break;
      case Fault::kDie:
        if (qp.attempt == 0 && happens(i, event, now)) kill(getpid(), SIGKILL);
        break;
      case Fault::kRefuse:
      case Fault::kHold:
      case Fault::kWake:
      case Fault::kLoseAck:
      case Fault::kShuffle:
      case Fault::kLate:
      case Fault::kLosePacket:
      case Fault::kRepeatPacket:
      case Fault::kDelayPacket:
        break;
    }
  }
  if (verdict.kind == Verdict::Kind::kGo && qp.attempt == 0) take_link(qp, request, now);
  return verdict;
}

Verdict Injection::on_request(const RequestFacts& request, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(qps_, request.qp);
  QpState& qp = qps_[request.qp];
  if (qp.incarnation != request.incarnation) {
    qp = {};
    qp.incarnation = request.incarnation;
  }
  if (qp.has_request && request.number < qp.number) return {};  // it is sent again, after a later one
  if (!qp.has_request || request.number > qp.number) {
    QpState next;
    next.incarnation = request.incarnation;
    next.has_request = true;
    next.number = request.number;
    next.link_free_at = qp.link_free_at;
    next.went_at = qp.went_at;
    qp = next;
  }
  if (qp.fails)
    return {Verdict::Kind::kFail, 0, qp.vendor_err, false};  // once the requests before it are done
  if (now < qp.until) return {Verdict::Kind::kHold, qp.until, 0, false};
  if (qp.is_carried_out) {  // sent again, it is a duplicate: the responder acknowledges it, and does nothing
                            // else
    if (!loses_ack(qp, request, now)) return {Verdict::Kind::kDrop, 0, 0, false};
    if (qp.fails) return {Verdict::Kind::kFail, 0, qp.vendor_err, true};
    return {Verdict::Kind::kHold, qp.until, 0, true};
  }
  if (!qp.is_judged) {
    const Verdict verdict = judge(qp, request, now);
    // Lost or refused, it is judged again when it is sent again.
    qp.is_judged = verdict.kind == Verdict::Kind::kGo;
    qp.fails = verdict.kind == Verdict::Kind::kFail;
    qp.vendor_err = verdict.vendor_err;
    if (verdict.kind != Verdict::Kind::kGo) return verdict;
    if (now < qp.until) return {Verdict::Kind::kHold, qp.until, 0, false};
  }
  qp.went_at = now;
  return {};
}

bool Injection::loses_ack(QpState& qp, const RequestFacts& request, int64_t now) {
  if (!may_be_lost(qp.losses, request)) return false;
  const Event event{request.qp, request.opcode, request.number, qp.attempt};
  for (size_t i = 0; i < plan_.rules.size(); ++i) {
    if (plan_.rules[i].what != Fault::kLoseAck || !happens(i, event, now)) continue;
    qp.fails = !note_lost(qp, request, now);
    qp.vendor_err = lost_error_;
    return true;
  }
  return false;
}

bool Injection::loses_ack(const RequestFacts& request, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(qps_, request.qp);
  QpState& qp = qps_[request.qp];
  if (qp.incarnation != request.incarnation || !qp.has_request || qp.number != request.number ||
      !request.is_acknowledged)
    return false;
  return qp.is_carried_out = loses_ack(qp, request, now);
}

Verdict Injection::on_acknowledgement(const RequestFacts& request, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(acknowledgements_, request.qp);
  AcknowledgementState& state = acknowledgements_[request.qp];
  if (state.number != request.number || state.incarnation != request.incarnation)
    state = {request.incarnation, request.number, 0, 0};
  if (now < state.until) return {Verdict::Kind::kHold, state.until, 0, false};
  if (!may_be_lost(state.losses, request)) return {};
  const Event event{request.qp, request.opcode, request.number, state.losses};
  for (size_t i = 0; i < plan_.rules.size(); ++i) {
    if (plan_.rules[i].what != Fault::kLoseAck || !happens(i, event, now)) continue;
    ++state.losses;
    state.until = request.timeout_ns == 0 ? INT64_MAX : now + static_cast<int64_t>(request.timeout_ns);
    if (request.timeout_ns != 0 && state.losses > request.retry_cnt)
      return {Verdict::Kind::kFail, 0, lost_error_, true};
    return {Verdict::Kind::kHold, state.until, 0, true};
  }
  return {};
}

PacketVerdict Injection::on_packet(PacketKind kind, int64_t now) {
  std::lock_guard lock(mutex_);
  const Event event{0, static_cast<uint32_t>(kind), ++packets_, 0};
  for (size_t i = 0; i < plan_.rules.size(); ++i) {
    const Rule& rule = plan_.rules[i];
    if (rule.what < Fault::kLosePacket || (kind == PacketKind::kMad && rule.opcode == kAny)) continue;
    if (!happens(i, event, now)) continue;
    if (rule.what == Fault::kLosePacket) return {PacketVerdict::Kind::kLose, 0};
    if (rule.what == Fault::kRepeatPacket) return {PacketVerdict::Kind::kRepeat, 0};
    return {PacketVerdict::Kind::kDelay, now + static_cast<int64_t>(duration(i, event))};
  }
  return {};
}

uint64_t Injection::order_of_bytes(uint32_t qp, uint32_t opcode, uint32_t begin, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(qps_, qp);
  const Event event{qp, opcode, qps_[qp].number, begin};
  for (size_t i = 0; i < plan_.rules.size(); ++i)
    if (plan_.rules[i].what == Fault::kShuffle && happens(i, event, now))
      return draw({plan_.seed, ~i, qp, event.number, begin}) | 1;
  return 0;
}

uint64_t Injection::event_delay(uint32_t cq, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(events_, cq);
  const Event event{cq, kAny, ++events_[cq], 0};
  uint64_t delay = 0;
  for (size_t i = 0; i < plan_.rules.size(); ++i)
    if (plan_.rules[i].what == Fault::kLate && happens(i, event, now))
      delay = std::max(delay, duration(i, event));
  return delay;
}

bool Injection::holds_poll(uint32_t cq, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(held_polls_, cq);
  if (now < held_polls_[cq]) return true;
  // The call after a hold finds what is there, or a rule for each call would hide it for ever.
  if (std::exchange(held_polls_[cq], 0) != 0) return false;
  grow(polls_, cq);
  const Event event{cq, kAny, ++polls_[cq], 0};
  for (size_t i = 0; i < plan_.rules.size(); ++i)
    if (plan_.rules[i].what == Fault::kHold && happens(i, event, now))
      held_polls_[cq] = now + static_cast<int64_t>(duration(i, event));
  return now < held_polls_[cq];
}

bool Injection::wakes(uint32_t cq, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(armings_, cq);
  const Event event{cq, kAny, ++armings_[cq], 0};
  bool wakes = false;
  for (size_t i = 0; i < plan_.rules.size(); ++i)
    if (plan_.rules[i].what == Fault::kWake && happens(i, event, now)) wakes = true;
  return wakes;
}

bool Injection::refuses(uint32_t kind, int64_t now) {
  std::lock_guard lock(mutex_);
  grow(creations_, kind);
  const Event event{kind, kAny, ++creations_[kind], 0};
  for (size_t i = 0; i < plan_.rules.size(); ++i)
    if (plan_.rules[i].what == Fault::kRefuse && happens(i, event, now)) return true;
  return false;
}

}  // namespace verbena::faults
