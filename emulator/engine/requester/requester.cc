// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/requester.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/clock.h"
#include "engine/completion/completion.h"
#include "engine/datagram/datagram.h"
#include "engine/memory/region_pages.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/remote/remote_path.h"
#include "engine/requester/peer_path.h"
#include "engine/requester/psn.h"
#include "engine/requester/timers.h"
#include "engine/responder/key_errors.h"
#include "engine/responder/memory_requests.h"
#include "engine/responder/placement.h"
#include "engine/responder/responder.h"
#include "engine/xrc/xrc.h"
#include "fabric/hazards.h"
#include "observe/log.h"
#include "observe/mutant.h"

namespace verbena {
namespace {

// While requests wait, and nobody polls, the service thread looks at them this often.
constexpr int64_t kShortTick = 200'000;
// A request that found no receive WQE is not tried again sooner than this: the peer posts several meanwhile,
// and the two do not wear out one cache line between them.
constexpr int64_t kReceivePause = 5'000;
// So long an XRC_RECV queue pair may take to go over from a process that has ended to another
// (xrc_shared_qp.h).
constexpr uint64_t kSuccession = 5'000'000'000;
// And so long the process of an XRC SRQ may take to be met: an adapter would need no processor for that.
constexpr uint64_t kUnmet = 5'000'000'000;
// A request whose peer has been asked to wake us is looked at this often all the same.
constexpr int64_t kLongTick = 20'000'000;

// Waits, or fails when the time is over. `patience_ns`: from the first time on.
Step wait(Qp& qp, const SendRequest& request, Waiting what, VendorError reason, uint64_t patience_ns) {
  if (qp.waiting != what) {
    if (patience_ns == 0) return fail(qp, request, reason);
    qp.waiting = what;
    qp.give_up_at = deadline_after(patience_ns);
  } else if (qp.give_up_at != kEndOfTime && now_ns() >= qp.give_up_at) {
    return fail(qp, request, reason);
  }
  qp.wait_reason = reason;
  qp.try_again_at = what == Waiting::kReceive ? now_ns() + kReceivePause : 0;
  std::atomic<uint32_t>& count = what == Waiting::kReceive ? qp.shared->rnr_naks : qp.shared->retries;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return Step::kWaits;
}

// The request is done.
void finish(Qp& qp, const SendRequest& request) {
  qp.waiting = Waiting::kNothing;
  advance(qp, request.length, packets_of(request.length, qp.mtu));
  qp.sq_next = request.number + 1;
  if (qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0 || mutated("post-unsignaled-completes"))
    complete_send(qp, request, VendorError::none);
}

// One try, holding a hazard guard on the peer: both sides' memory stays registered for as long as it lasts.
Response attempt(Qp& qp, const SendOperation& operation, SendRequest& request, VendorError* unreachable) {
  VendorError target = VendorError::none;
  if (qp.xrc_targets) {
    if (qp.waiting == Waiting::kTransport) follow_responder(qp);
    target = select_target(qp, request.remote_srqn);
  }
  const HazardGuard guard(qp.process->directory(), qp.process->membership().slot(), qp.path.adapter->slot());
  std::optional<HazardGuard> target_guard;
  if (qp.xrc_targets && target == VendorError::none)
    target_guard.emplace(qp.process->directory(), qp.process->membership().slot(), qp.path.memory->slot());
  iovec ranges[PeerAdapter::kMaxRanges];
  LocalBytes local{ranges, 0};
  local.error = find_local_bytes(qp, operation, request, ranges, &local.count);
  if (mutated("fence-ignored") && local.error == VendorError::none && local.count != 0) {
    // What a fenced request finds in its buffer if it does not wait for the read before it.
    static std::vector<std::byte> before;
    static const std::byte* where = nullptr;
    auto* const bytes = static_cast<std::byte*>(ranges[0].iov_base);
    if (operation.awaits_response) where = bytes, before.assign(bytes, bytes + ranges[0].iov_len);
    if ((request.flags & IBV_SEND_FENCE) != 0 && where == bytes && before.size() >= ranges[0].iov_len)
      ranges[0].iov_base = before.data();
  }
  *unreachable = VendorError::none;
  if (local.error != VendorError::none && operation.sges != SgeUse::scatter)
    return {Answer::kLocal, local.error};
  const uint64_t generation = qp.path.generation;
  *unreachable = check_path(qp);
  if (*unreachable != VendorError::none) return {};
  if (qp.xrc_targets) {
    if (target == VendorError::none) target = check_target(qp);
    if (refuses_target(target)) return refuse(qp.path, target);
    *unreachable = target;
    if (target != VendorError::none) return {};
  }
  // The peer began again: it knows nothing of the chunks it has got.
  if (qp.path.generation != generation) request.done = 0;
  const Response response = respond(qp, operation, request, local);
  // The own completion first: whom the peer's event wakes may have answered before this thread runs again,
  // and must not find that answer completed and the request not.
  if (response.answer == Answer::kAck) finish(qp, request);
  raise_event_due(qp.path);
  return response;
}

// Nobody is at the other end. What is wrong with the request itself is found before it would leave.
Response without_path(Qp& qp, const SendOperation& operation, const SendRequest& request,
                      VendorError* unreachable) {
  const uint32_t own_slot = qp.process->membership().slot();
  const HazardGuard guard(qp.process->directory(), own_slot, own_slot);
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count;
  const VendorError error = find_local_bytes(qp, operation, request, ranges, &count);
  *unreachable = VendorError::no_path;
  if (error == VendorError::none || operation.sges == SgeUse::scatter) return {Answer::kGone};
  *unreachable = VendorError::none;
  return {Answer::kLocal, error};
}

// The message has left and was not taken: an unacknowledged sender knows nothing of that.
bool is_lost(VendorError unreachable, const Response& response) {
  return unreachable != VendorError::none || response.answer == Answer::kRnr ||
         response.answer == Answer::kNak || response.answer == Answer::kGone;
}

// Binding and invalidating here need no peer, and no PSN.
Step carry_out_here(Qp& qp, const SendRequest& request) {
  const Response response = carry_out_locally(qp, request);
  if (response.answer == Answer::kLocal) return fail(qp, request, response.error);
  if (response.answer == Answer::kBusy) {
    qp.waiting = Waiting::kTurn;
    qp.give_up_at = kEndOfTime;
    return Step::kWaits;
  }
  qp.waiting = Waiting::kNothing;
  qp.sq_next = request.number + 1;
  if (!mutated("mw-bind-unsignaled")) complete_send(qp, request, VendorError::none);
  return Step::kFinished;
}

}  // namespace

Step fail(Qp& qp, const SendRequest& request, VendorError error) {
  const auto* text = find_vendor_error(static_cast<uint32_t>(error));
  VERBENA_WARN("QP 0x%06x: %s (wr_id 0x%llx) fails: %s: %s", qp.shared->qpn,
               find_send_operation(request.opcode)->name, static_cast<unsigned long long>(request.wr_id),
               text->name, text->text);
  complete_send(qp, request, error);
  qp.sq_next = request.number + 1;
  qp.waiting = Waiting::kNothing;
  if (!is_acknowledged(qp.type))
    enter_send_queue_error(qp);
  else if (!mutated("error-without-flush-state"))
    enter_error(qp);
  return Step::kFailed;
}

namespace {

Step carry_out_at_once(Qp& qp, SendRequest& request) {
  const SendOperation& operation = *find_send_operation(request.opcode);
  const SendLimits limits = send_limits(qp);
  if (const VendorError error = check_send_length(limits, operation, request.length);
      error != VendorError::none)
    return fail(qp, request, error);

  if (qp.datagrams && must_wait(qp, request)) {
    qp.waiting = Waiting::kChunk;
    qp.give_up_at = kEndOfTime;
    return Step::kWaits;
  }
  if (qp.datagrams) {
    if (const VendorError error = send_datagram(qp, operation, request); error != VendorError::none)
      return fail(qp, request, error);
    finish(qp, request);
    raise_datagram_events(qp);
    return Step::kFinished;
  }
  if (mutated("post-uc-reads") && qp.type == IBV_QPT_UC && operation.awaits_response)
    return finish(qp, request), Step::kFinished;
  if (operation.awaits_response && qp.attr.max_rd_atomic == 0)
    return fail(qp, request, VendorError::too_many_outstanding_reads);
  PeerPath& path = qp.path;
  const auto wait_for_transport = [&](VendorError reason, uint64_t at_least = 0) {
    uint64_t patience = std::max(transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt), at_least);
    // A responder whose owner has ended is still there; only whoever takes it over must notice first.
    if (qp.xrc_targets && path.adapter && qp.waiting != Waiting::kTransport && follow_responder(qp))
      patience = std::max(patience, kSuccession);
    return wait(qp, request, Waiting::kTransport, reason, patience);
  };
  VendorError unreachable = VendorError::none;
  const uint32_t done_before = request.done;
  const Response response = path.adapter ? attempt(qp, operation, request, &unreachable)
                                         : without_path(qp, operation, request, &unreachable);
  if (!is_acknowledged(qp.type) && is_lost(unreachable, response) && !mutated("uc-fails")) {
    finish(qp, request);
    return Step::kFinished;
  }
  if (unreachable != VendorError::none)
    return wait_for_transport(unreachable, unreachable == VendorError::peer_silent ? kUnmet : 0);
  switch (response.answer) {
    case Answer::kAck:
      break;
    case Answer::kPartial:
      // Not a byte: the responder has still to scatter what this would overtake, and a silent one is silent.
      if (request.done == done_before) return wait_for_transport(VendorError::peer_silent);
      qp.waiting = Waiting::kChunk;
      qp.give_up_at = kEndOfTime;
      return Step::kWaits;
    case Answer::kBusy: {
      // Turns are short. Who never gets one meets a holder that is stopped, or a damaged word: a silent
      // responder.
      constexpr uint64_t kLongestTurn = 1'000'000'000;
      return wait(qp, request, Waiting::kTurn, VendorError::peer_silent,
                  std::max(kLongestTurn, transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt)));
    }
    case Answer::kRnr:
      if (mutated("rnr-drops")) return finish(qp, request), Step::kFinished;
      return wait(qp, request, Waiting::kReceive,
                  mutated("rnr-status") ? VendorError::peer_silent : VendorError::no_receive_posted,
                  rnr_failure_ns(qp.attr.rnr_retry, path.qp->min_rnr_timer));
    case Answer::kNak:
    case Answer::kLocal:
      return fail(qp, request, response.error);
    case Answer::kGone:
      return wait_for_transport(VendorError::peer_gone);
  }
  return Step::kFinished;
}

// With a rate: what goes is paid for, and what cannot be paid for yet is held back.
[[gnu::noinline]] Step carry_out_paced(Qp& qp, SendRequest& request) {
  if (held_back_until(qp, request, kChunkSize) != 0) return Step::kWaits;
  const uint32_t before = request.done, length = request.length;
  const Step step = carry_out_at_once(qp, request);
  if (step == Step::kFinished)
    charge_for(qp, request, length - before);
  else if (step == Step::kWaits && request.done > before)
    charge_for(qp, request, request.done - before);
  return step;
}

}  // namespace

int64_t held_back_until(Qp& qp, const SendRequest& request, uint32_t most) {
  const bool sends = find_send_operation(request.opcode)->sges != SgeUse::scatter;
  const uint32_t next = sends ? std::min(request.length - request.done, piece_of(qp.pacing, most)) : 0;
  const int64_t at = may_go_at(qp.pacing, bytes_on_wire(next, qp.mtu));
  return qp.pacing.held_until = now_ns() < at ? at : 0;
}

void charge_for(Qp& qp, const SendRequest& request, uint32_t bytes) {
  const bool sends = find_send_operation(request.opcode)->sges != SgeUse::scatter;
  charge(qp.pacing, bytes_on_wire(sends ? bytes : 0, qp.mtu), now_ns());
}

Step carry_out(Qp& qp, SendRequest& request) {
  if (is_local(request.opcode)) return carry_out_here(qp, request);
  if (qp.pacing.rate_kbps != 0) [[unlikely]]
    return carry_out_paced(qp, request);
  return carry_out_at_once(qp, request);
}

VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                             iovec* ranges, size_t* count) {
  *count = 0;
  if (request.is_inline && !mutated("post-inline-lkey")) {
    for (uint32_t i = 0; i < request.sge_count; ++i)
      if (request.sges[i].length != 0)
        ranges[(*count)++] = {reinterpret_cast<void*>(request.sges[i].addr), request.sges[i].length};
    return VendorError::none;
  }
  const MemoryUse use = operation.sges == SgeUse::scatter &&
                                !(mutated("atomic-result-anywhere") && operation.atomic) &&
                                !(mutated("read-into-anywhere") && operation.opcode == IBV_WR_RDMA_READ)
                            ? MemoryUse::local_scatter
                            : MemoryUse::local_gather;
  for (uint32_t i = 0; i < request.sge_count; ++i) {
    const ibv_sge& sge = request.sges[i];
    if (sge.length == 0) continue;
    const Translation place = translate(
        qp.process->view(), sge.lkey, false,
        mutated("lkey-other-pd") ? domain_of(qp.process->view(), sge.lkey, qp.pd->handle) : qp.pd->handle,
        use, sge.addr, sge.length - (mutated("lkey-last-byte") ? 1 : 0));
    if (place.check != KeyCheck::kOk) {
      VERBENA_WARN("QP 0x%06x: %s, SGE %u: lkey 0x%x, address 0x%llx, length %u: %s", qp.shared->qpn,
                   operation.name, i, sge.lkey, static_cast<unsigned long long>(sge.addr), sge.length,
                   find_vendor_error(static_cast<uint32_t>(local_key_error(place.check)))->text);
      return local_key_error(place.check);
    }
    // Short ones are copied by the CPU: an absent page must not be the program's fault.
    if (place.on_demand && (request.length <= kBounceSize || qp.datagrams) &&
        bring_in_pages(place.address, sge.length, operation.sges == SgeUse::scatter) != 0)
      return VendorError::local_memory_gone;
    if (mutated("send-first-element-only") && *count != 0)
      ranges[(*count)++] = {ranges[0].iov_base, sge.length};
    else
      ranges[(*count)++] = {reinterpret_cast<void*>(place.address), sge.length};
  }
  return VendorError::none;
}

void complete_send(Qp& qp, const SendRequest& request, VendorError error) {
  if (mutated("post-error-unsignaled") && !qp.signal_all && (request.flags & IBV_SEND_SIGNALED) == 0) return;
  if (error == VendorError::none && !qp.signal_all && (request.flags & IBV_SEND_SIGNALED) == 0 &&
      !mutated("post-unsignaled-completes"))
    return;
  append_send_completion(qp, {request.wr_id, request.number, request.opcode, request.length, error});
}

void append_send_completion(Qp& qp, const SendCompletion& completion) {
  Cq& cq = *qp.send_cq;
  const Claim claim = claim_completion(cq.ring, qp.process->membership().worker());
  if (claim.entry == nullptr && (cq.ring.ignores_overrun() || mutated("cq-overrun-unnoticed"))) return;
  if (claim.entry == nullptr) {
    cq.shared->overrun.store(1, std::memory_order_release);
    qp.process->ring_doorbell();
    return;
  }
  const bool failed = completion.error != VendorError::none;
  Cqe& entry = *claim.entry;
  entry.qp_index = qp.index;
  entry.qp_incarnation = qp.shared->incarnation;
  entry.index = static_cast<uint32_t>(completion.number);
  entry.byte_len = completion.length;
  if (mutated("wc-read-length") && completion.opcode == IBV_WR_RDMA_READ) entry.byte_len = 0;
  entry.status = static_cast<uint8_t>(
      failed ? find_vendor_error(static_cast<uint32_t>(completion.error))->status : IBV_WC_SUCCESS);
  if (failed && mutated("wc-error-succeeds")) entry.status = IBV_WC_SUCCESS;
  if (failed && mutated("wc-error-status")) entry.status = IBV_WC_GENERAL_ERR;
  entry.opcode = static_cast<uint8_t>(find_send_operation(completion.opcode)->completion);
  if (mutated("wc-send-opcode") && entry.opcode == IBV_WC_SEND) entry.opcode = IBV_WC_RDMA_WRITE;
  entry.vendor_err = static_cast<uint8_t>(completion.error);
  entry.flags = 0;
  entry.wr_id = failed && mutated("wc-error-without-id") ? 0 : completion.wr_id;
  publish_completion(cq.ring, claim, CqeKind::kPublished);
  raise_completion_event(*cq.shared, qp.process->self(), failed && !mutated("cq-solicited-no-errors"));
}

namespace {

// Whoever posts the next receive over there wakes this process. An XRC SRQ's owner is told at the SRQ,
// anybody else at the queue pair. False: it cannot be asked.
bool ask_to_be_woken(Qp& qp) {
  const SharedReceiveRing& shared = qp.path.shared_receives;
  if (qp.xrc_targets)
    return qp.path.target != nullptr && shared.ask_to_be_woken(qp.process->membership().worker());
  qp.path.qp->requester_waits.store(1, std::memory_order_seq_cst);
  if (shared.shared != nullptr) shared.shared->requesters_wait.store(1, std::memory_order_seq_cst);
  return true;
}

// Nobody has posted since. Of an SRQ somebody else may have got what was posted.
bool is_asked_for(const Qp& qp) {
  if (qp.xrc_targets)
    return qp.path.target != nullptr &&
           qp.path.shared_receives.is_asked_for(qp.process->membership().worker());
  return qp.path.shared_receives.shared == nullptr ||
         qp.path.qp->requester_waits.load(std::memory_order_seq_cst) != 0;
}

}  // namespace

int64_t progress_send_queue(Qp& qp, bool from_service) {
  if (qp.path.remote) return progress_remote(qp);
  while (qp.sq_next != qp.sq_posted) {
    const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
    const bool begun = qp.waiting != Waiting::kNothing;
    if (state != IBV_QPS_RTS && !(state == IBV_QPS_SQD && begun)) break;
    if (qp.waiting == Waiting::kReceive && !from_service && now_ns() < qp.try_again_at)
      return qp.try_again_at;
    const bool asks_for_waking = from_service && qp.waiting == Waiting::kReceive && qp.path.adapter;
    // Posting a receive looks at the flag without a fence: a receive posted just now may have missed it, so
    // we come back soon once more before we rely on it.
    const bool just_asked = asks_for_waking && !(qp.requester_flag_set && is_asked_for(qp));
    if (just_asked) qp.requester_flag_set = ask_to_be_woken(qp);
    if (carry_out(qp, qp.sq[qp.sq_next & (qp.sq.size() - 1)]) != Step::kWaits) {
      qp.requester_flag_set = false;
      continue;
    }
    if (qp.pacing.held_until != 0) return qp.pacing.held_until;
    // One chunk a hazard guard: others want their turn.
    if (qp.waiting == Waiting::kChunk) return now_ns() + (from_service ? 0 : kShortTick);
    const bool slow =
        (qp.requester_flag_set && !just_asked) || (from_service && qp.waiting == Waiting::kTransport);
    int64_t tick = kShortTick;
    if (slow) {
      tick = kLongTick;
      if (qp.waiting == Waiting::kReceive && qp.path.qp != nullptr)
        tick = std::max(tick, static_cast<int64_t>(rnr_timer_ns(qp.path.qp->min_rnr_timer)));
    }
    return std::min(now_ns() + tick, qp.give_up_at);
  }
  if (qp.drain_event_due && qp.state.load(std::memory_order_relaxed) == IBV_QPS_SQD &&
      qp.waiting == Waiting::kNothing) {
    qp.drain_event_due = false;
    raise_qp_event(qp, IBV_EVENT_SQ_DRAINED);
  }
  return kEndOfTime;
}

}  // namespace verbena
