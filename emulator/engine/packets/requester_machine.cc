// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/requester_machine.h"

#include <algorithm>
#include <utility>

#include "engine/rules/psn.h"
#include "engine/rules/timers.h"
#include "roce/opcode.h"
#include "roce/syndrome.h"

namespace verbena::packets {
namespace {

using roce::PacketType;

// Acknowledgements are requested for one packet in a quarter of the window, within these bounds.
constexpr uint32_t kFewestPerRequest = CongestionWindow::kLeast, kMostPerRequest = 16;
// Before a probe: so many round trips, and so long at least. A probe for a READ may bring all of its response
// once more, and a peer may be a process that is not scheduled.
constexpr int64_t kProbeRoundTrips = 4, kShortestProbe = 200'000, kShortestReadProbe = 1'000'000;
constexpr uint32_t kMostDoublings = 8;

uint32_t psns_of(const PacketRequest& request, uint32_t mtu) {
  return static_cast<uint32_t>(packets_of(request.length, mtu));
}

// The packet of a SEND or WRITE at this place in its message.
PacketType type_of(const PacketRequest& request, bool is_first, bool is_last) {
  const bool sends = request.kind == Kind::kSend;
  if (!is_last) {
    if (is_first) return sends ? PacketType::kSendFirst : PacketType::kWriteFirst;
    return sends ? PacketType::kSendMiddle : PacketType::kWriteMiddle;
  }
  if (request.has_invalidate)
    return is_first ? PacketType::kSendOnlyInvalidate : PacketType::kSendLastInvalidate;
  if (request.has_immediate) {
    if (is_first) return sends ? PacketType::kSendOnlyImmediate : PacketType::kWriteOnlyImmediate;
    return sends ? PacketType::kSendLastImmediate : PacketType::kWriteLastImmediate;
  }
  if (is_first) return sends ? PacketType::kSendOnly : PacketType::kWriteOnly;
  return sends ? PacketType::kSendLast : PacketType::kWriteLast;
}

Failure failure_of(uint8_t syndrome) {
  switch (static_cast<roce::NakCode>(roce::value_of(syndrome))) {
    case roce::NakCode::kRemoteAccess:
      return Failure::kRemoteAccess;
    case roce::NakCode::kRemoteOperation:
      return Failure::kRemoteOperation;
    default:
      return Failure::kInvalidRequest;
  }
}

}  // namespace

RequesterMachine::RequesterMachine(const RequesterOptions& options, RequesterHost& host)
    : options_(options),
      host_(host),
      slots_(std::max(options.depth, 1u)),
      next_psn_(psn_of(options.first_psn)),
      cursor_psn_(next_psn_),
      acked_psn_(next_psn_),
      sent_psn_(next_psn_),
      retries_left_(options.retry_cnt),
      window_(std::min(options.first_window, options.window), options.window) {}

void RequesterMachine::begin(uint32_t first_psn) {
  next_psn_ = cursor_psn_ = acked_psn_ = sent_psn_ = psn_of(first_psn);
  head_ = cursor_ = tail_;
  in_flight_ = 0;
  expects_gap_ = false;
}

void RequesterMachine::set_limits(const RequesterLimits& limits) {
  if (limits.retry_cnt != options_.retry_cnt) retries_left_ = limits.retry_cnt;
  options_.max_rd_atomic = limits.max_rd_atomic;
  options_.timeout_ns = limits.timeout_ns;
  options_.retry_cnt = limits.retry_cnt;
  options_.rnr_retry = limits.rnr_retry;
}

RequesterMachine::Position RequesterMachine::position() const {
  return {head_, cursor_, cursor_psn_, acked_psn_, sent_psn_, since_request_, in_flight_, repeated_};
}

void RequesterMachine::take_back(const Position& position) {
  head_ = position.head;
  cursor_ = position.cursor;
  cursor_psn_ = position.cursor_psn;
  acked_psn_ = position.acked_psn;
  sent_psn_ = position.sent_psn;
  since_request_ = position.since_request;
  in_flight_ = position.in_flight;
  repeated_ = position.repeated;
  if (is_timed_ && psn_distance(timed_psn_, cursor_psn_) <= 0) is_timed_ = false;
}

bool RequesterMachine::post(const PacketRequest& request) {
  if (failed_ || tail_ - head_ == slots_.size()) return false;
  const uint32_t packets = psns_of(request, options_.connection.mtu);
  at(tail_++) = {request, next_psn_, packets};
  next_psn_ = psn_add(next_psn_, packets);
  return true;
}

// ---- sending ----

// Request packets in flight: a READ counts as one, however long its response is.
uint32_t RequesterMachine::count_in_flight() const {
  uint32_t packets = 0;
  for (uint64_t i = head_; i <= cursor_ && i < tail_; ++i) {
    const Slot& slot = at(i);
    if (brings_response(slot.request.kind)) {
      packets += i < cursor_;
      continue;
    }
    const uint32_t begin = i == head_ ? acked_psn_ : slot.first_psn;
    const uint32_t end = i == cursor_ ? cursor_psn_ : psn_add(slot.first_psn, slot.packets);
    packets += static_cast<uint32_t>(std::max(psn_distance(begin, end), 0));
  }
  return packets;
}

uint32_t RequesterMachine::in_flight() {
  if (in_flight_ == kUnknown) in_flight_ = count_in_flight();
  return in_flight_;
}

uint32_t RequesterMachine::room(int64_t now) {
  const uint32_t most = window(), used = in_flight();
  return most > used ? std::min(most - used, window_.paced(now)) : 0;
}

bool RequesterMachine::may_start(const Slot& slot) const {
  // Two PSNs compare only within half the ring.
  const int64_t ahead = psn_distance(acked_psn_, slot.first_psn);
  if (ahead < 0 || ahead + slot.packets >= int64_t{kPsnWindow}) return false;
  if (!brings_response(slot.request.kind) && !slot.request.fenced) return true;
  uint32_t awaited = 0;
  for (uint64_t i = head_; i < cursor_; ++i) awaited += brings_response(at(i).request.kind);
  if (slot.request.fenced && awaited != 0) return false;
  return !brings_response(slot.request.kind) || awaited < std::max(options_.max_rd_atomic, 1u);
}

bool RequesterMachine::next_packet(int64_t now, OutgoingPacket* out) {
  if (failed_ || cursor_ == tail_ || held_until_ != kNoTimer) return false;
  Slot& slot = at(cursor_);
  if (cursor_psn_ == slot.first_psn && !may_start(slot)) return false;
  if (options_.connection.reliable) {
    if (in_flight() >= window()) {
      window_.limited();
      return false;
    }
    if (!window_.may_send(now)) {
      paced_until_ = window_.send_at();
      return false;
    }
    paced_until_ = kNoTimer;
  }
  out->packet = {};
  if (!build(slot, out)) {
    // It fails when those before it have completed.
    if (cursor_ == head_) fail(Failure::kLocalProtection);
    return false;
  }
  after_sending(slot, now);
  return true;
}

bool RequesterMachine::build(Slot& slot, OutgoingPacket* out) {
  const PacketRequest& request = slot.request;
  roce::Packet& packet = out->packet;
  const auto index = static_cast<uint32_t>(psn_distance(slot.first_psn, cursor_psn_));
  const uint32_t offset = index * options_.connection.mtu;
  PacketType type{};
  packet.bth.destination_qpn = options_.connection.remote_qpn;
  packet.bth.pkey = options_.connection.pkey;
  packet.bth.psn = cursor_psn_;
  packet.xrceth = {request.srqn};
  if (request.kind == Kind::kRead) {
    // Asked again, a READ begins where the response broke off.
    type = PacketType::kReadRequest;
    packet.reth = {request.remote_address + offset, request.rkey, request.length - offset};
  } else if (request.kind == Kind::kAtomicWrite) {
    type = PacketType::kAtomicWrite;
    packet.reth = {request.remote_address, request.rkey, request.length};
    if (!host_.gather(request.number, 0, out->make_payload(request.length))) return false;
  } else if (brings_response(request.kind)) {
    const bool swaps = request.kind == Kind::kCompareSwap;
    type = swaps ? PacketType::kCompareSwap : PacketType::kFetchAdd;
    packet.atomic = {request.remote_address, request.rkey, swaps ? request.swap : request.compare_add,
                     swaps ? request.compare_add : 0};
  } else {
    const bool is_last = index + 1 == slot.packets;
    const uint32_t size = std::min(options_.connection.mtu, request.length - offset);
    type = type_of(request, index == 0, is_last);
    packet.reth = {request.remote_address, request.rkey, request.length};
    packet.immediate = {request.immediate};
    packet.invalidate = {request.immediate};
    packet.bth.solicited = is_last && request.solicited;
    if (!host_.gather(request.number, offset, out->make_payload(size))) return false;
    // Each message is acknowledged, and a long one in between. The responder puts acknowledgements together.
    const uint32_t per_request = std::clamp(window() / 4, kFewestPerRequest, kMostPerRequest);
    const bool asks = is_last || since_request_ + 1 >= per_request || in_flight() + 1 >= window();
    packet.bth.ack_requested = options_.connection.reliable && asks;
    since_request_ = asks ? 0 : since_request_ + 1;
  }
  packet.bth.opcode = roce::opcode_of(options_.connection.transport(), type);
  return true;
}

void RequesterMachine::after_sending(const Slot& slot, int64_t now) {
  const uint32_t end = psn_add(slot.first_psn, slot.packets);
  if (psn_distance(cursor_psn_, sent_psn_) > 0)
    ++repeated_;
  else
    time_packet(now);
  if (options_.connection.reliable && in_flight_ != kUnknown) ++in_flight_;
  cursor_psn_ = brings_response(slot.request.kind) ? end : psn_next(cursor_psn_);
  if (psn_distance(sent_psn_, cursor_psn_) > 0) sent_psn_ = cursor_psn_;
  if (cursor_psn_ == end) ++cursor_;
  if (!options_.connection.reliable) {
    // Nothing comes back.
    acked_psn_ = cursor_psn_;
    while (head_ != cursor_) host_.completed(at(head_++).request.number);
    return;
  }
  window_.sent(now);
  if (deadline_ == kNoTimer && options_.timeout_ns != kNever)
    deadline_ = now + static_cast<int64_t>(options_.timeout_ns);
  if (probe_at_ == kNoTimer) probe_at_ = probe_time(now);
}

// One packet at a time is timed, whose acknowledgement is requested, or which has a response.
void RequesterMachine::time_packet(int64_t now) {
  if (is_timed_ || since_request_ != 0) return;
  is_timed_ = true;
  timed_psn_ = cursor_psn_;
  timed_at_ = now;
}

// Without a measured round trip, or with a timeout that is as short, there are no probes.
int64_t RequesterMachine::probe_time(int64_t now) const {
  const int64_t round_trip = window_.recent_round_trip();
  if (round_trip < 0) return kNoTimer;
  const bool reads = head_ != tail_ && brings_response(at(head_).request.kind);
  const int64_t shortest = reads ? kShortestReadProbe : kShortestProbe;
  const int64_t patience = std::max(kProbeRoundTrips * round_trip, shortest)
                           << std::min(probes_, kMostDoublings);
  const bool is_sooner =
      options_.timeout_ns == kNever || patience < static_cast<int64_t>(options_.timeout_ns / 2);
  return is_sooner ? now + patience : kNoTimer;
}

// ---- receiving ----

void RequesterMachine::progress(uint32_t acknowledged, int64_t now) {
  window_.acknowledged(static_cast<uint32_t>(psn_distance(acked_psn_, acknowledged)));
  if (is_timed_ && psn_distance(timed_psn_, acknowledged) > 0) {
    is_timed_ = false;
    window_.round_trip(now - timed_at_);
  }
  acked_psn_ = acknowledged;
  in_flight_ = kUnknown;
  probes_ = 0;
  probe_at_ = acked_psn_ == sent_psn_ ? kNoTimer : probe_time(now);
  retries_left_ = options_.retry_cnt;
  rnr_tries_ = 0;
  recovering_ = expects_gap_ = false;
  held_until_ = kNoTimer;
  if (deadline_ != kNoTimer) deadline_ = now + static_cast<int64_t>(options_.timeout_ns);
}

void RequesterMachine::complete_head(int64_t now) {
  const Slot& slot = at(head_++);
  progress(psn_add(slot.first_psn, slot.packets), now);
  if (acked_psn_ == sent_psn_) deadline_ = kNoTimer;
  if (cursor_ < head_) cursor_ = head_;
  if (psn_distance(cursor_psn_, acked_psn_) > 0) cursor_psn_ = acked_psn_;
  host_.completed(slot.request.number);
}

// The peer has all packets below `end`. False: but the response to one of them is missing.
bool RequesterMachine::acknowledge_below(uint32_t end, int64_t now) {
  while (head_ != tail_ && psn_distance(acked_psn_, end) > 0) {
    const Slot& slot = at(head_);
    if (brings_response(slot.request.kind)) return false;
    const uint32_t slot_end = psn_add(slot.first_psn, slot.packets);
    if (psn_distance(slot_end, end) < 0) {
      progress(end, now);
      if (psn_distance(cursor_psn_, acked_psn_) > 0) cursor_psn_ = acked_psn_;
      return true;
    }
    complete_head(now);
  }
  return true;
}

void RequesterMachine::go_back() {
  cursor_ = head_;
  cursor_psn_ = acked_psn_;
  since_request_ = 0;
  in_flight_ = kUnknown;
  is_timed_ = false;
  is_probing_ = false;
  recovering_ = true;
}

// Something is missing. Sent again from there, at most retry_cnt times without progress.
void RequesterMachine::lose(int64_t now) {
  if (retries_left_ == 0) return fail(Failure::kRetryExceeded);
  --retries_left_;
  expects_gap_ = false;
  host_.retried();
  window_.lost(now);
  go_back();
  probe_at_ = probe_time(now);
  deadline_ = options_.timeout_ns == kNever ? kNoTimer : now + static_cast<int64_t>(options_.timeout_ns);
}

// Nothing has come for a while: is the peer there, and what has it got?
void RequesterMachine::probe(int64_t now) {
  if (!is_probing_) {
    cursor_before_probe_ = cursor_;
    psn_before_probe_ = cursor_psn_;
  }
  ++probes_;
  go_back();
  is_probing_ = true;
  probe_at_ = probe_time(now);
}

// If the peer has more than the packet of the probe, nothing was missing, and the peer, or its answer, was
// slow. If it has that one only, the others were lost.
void RequesterMachine::end_probe(uint32_t acknowledged, int64_t now) {
  is_probing_ = false;
  if (psn_distance(acked_psn_, acknowledged) <= 1) return window_.lost(now);
  cursor_ = std::max(cursor_before_probe_, head_);
  cursor_psn_ = psn_before_probe_;
  in_flight_ = kUnknown;
}

void RequesterMachine::fail(Failure failure) {
  failed_ = true;
  deadline_ = held_until_ = paced_until_ = probe_at_ = kNoTimer;
  in_flight_ = 0;
  const uint64_t number = at(head_).request.number;
  head_ = cursor_ = tail_;
  host_.failed(number, failure);
}

void RequesterMachine::on_packet(const roce::Packet& packet, int64_t now) {
  const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  if (failed_ || info == nullptr || info->transport != options_.connection.transport() ||
      !options_.connection.reliable)
    return;
  // Of what was sent and is not acknowledged; anything else is late or forged.
  const int32_t ahead = psn_distance(acked_psn_, packet.bth.psn);
  if (ahead < 0 || ahead >= psn_distance(acked_psn_, sent_psn_)) return;
  switch (info->operation) {
    case roce::Operation::kAcknowledge:
      if (roce::kind_of(packet.aeth.syndrome) != roce::SyndromeKind::kAck) return on_nak(packet, now);
      if (is_probing_) end_probe(psn_next(packet.bth.psn), now);
      // A lost response is asked for once; then the timer decides.
      if (!acknowledge_below(psn_next(packet.bth.psn), now) && !recovering_) lose(now);
      return;
    case roce::Operation::kReadResponse:
    case roce::Operation::kAtomicAcknowledge:
      if (is_probing_) end_probe(psn_next(packet.bth.psn), now);
      return on_response(packet, now);
    default:
      return;
  }
}

// All before the PSN of a NAK is acknowledged.
void RequesterMachine::on_nak(const roce::Packet& packet, int64_t now) {
  const uint8_t syndrome = packet.aeth.syndrome;
  if (!acknowledge_below(packet.bth.psn, now)) {
    if (!recovering_) lose(now);
    return;
  }
  switch (roce::kind_of(syndrome)) {
    case roce::SyndromeKind::kRnrNak:
      host_.got_rnr_nak();
      if (options_.rnr_retry != 7 && rnr_tries_ >= options_.rnr_retry)
        return fail(Failure::kRnrRetryExceeded);
      ++rnr_tries_;
      expects_gap_ = psn_distance(acked_psn_, sent_psn_) > 1;
      go_back();
      probe_at_ = kNoTimer;
      held_until_ = now + static_cast<int64_t>(rnr_timer_ns(roce::value_of(syndrome)));
      deadline_ = kNoTimer;
      return;
    case roce::SyndromeKind::kNak:
      if (roce::value_of(syndrome) == static_cast<uint8_t>(roce::NakCode::kSequence)) {
        // Packets behind that of an RNR NAK have no place at the responder. rxe says so (rxe_resp.c,
        // check_psn()), others drop them: nothing is lost. If it is another gap after all, a timer sees to
        // it.
        const bool is_timed = held_until_ != kNoTimer || deadline_ != kNoTimer || probe_at_ != kNoTimer;
        if (!std::exchange(expects_gap_, false) || !is_timed) lose(now);
        return;
      }
      return fail(failure_of(syndrome));
    default:
      return;
  }
}

// Packets of a response are taken by their PSN: peers name the place of the first one differently when a READ
// is asked again.
void RequesterMachine::on_response(const roce::Packet& packet, int64_t now) {
  const uint32_t psn = packet.bth.psn;
  uint64_t index = head_;
  while (index != tail_ && psn_distance(psn_add(at(index).first_psn, at(index).packets), psn) >= 0) ++index;
  if (index == tail_) return;
  const Slot& slot = at(index);
  const PacketRequest& request = slot.request;
  const bool is_atomic =
      roce::find_opcode(packet.bth.opcode)->operation == roce::Operation::kAtomicAcknowledge;
  if (!brings_response(request.kind) || is_atomic != brings_value(request.kind)) return;
  const bool all_before = acknowledge_below(slot.first_psn, now);
  if (!all_before || head_ != index || psn != acked_psn_) {
    if (!recovering_) lose(now);
    return;
  }
  if (is_atomic) {
    if (!host_.atomic_result(request.number, packet.atomic_ack.before))
      return fail(Failure::kLocalProtection);
    return complete_head(now);
  }
  if (request.kind == Kind::kAtomicWrite)
    return packet.payload.empty() ? complete_head(now) : fail(Failure::kBadResponse);
  const uint32_t offset = static_cast<uint32_t>(psn_distance(slot.first_psn, psn)) * options_.connection.mtu;
  if (packet.payload.size() != std::min(options_.connection.mtu, request.length - offset))
    return fail(Failure::kBadResponse);
  if (!host_.scatter(request.number, offset, packet.payload)) return fail(Failure::kLocalProtection);
  if (offset + packet.payload.size() == request.length) return complete_head(now);
  progress(psn_next(psn), now);
  if (psn_distance(cursor_psn_, acked_psn_) > 0) cursor_psn_ = acked_psn_;
}

void RequesterMachine::on_congestion(int64_t now) { window_.notified(now); }

// ---- time ----

int64_t RequesterMachine::timer() const {
  const int64_t wait = held_until_ != kNoTimer ? held_until_ : std::min(paced_until_, probe_at_);
  return std::min(deadline_, wait);
}

void RequesterMachine::on_timer(int64_t now) {
  if (held_until_ != kNoTimer && now >= held_until_) held_until_ = kNoTimer;
  if (paced_until_ != kNoTimer && now >= paced_until_) paced_until_ = kNoTimer;
  if (deadline_ != kNoTimer && now >= deadline_) {
    window_.silent(now);
    return lose(now);
  }
  if (probe_at_ != kNoTimer && now >= probe_at_ && held_until_ == kNoTimer) probe(now);
}

}  // namespace verbena::packets
