// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/local_transport.h"

#include <algorithm>
#include <optional>

#include "engine/completion/send_completion.h"
#include "engine/local/fast_path.h"
#include "engine/local/xrc_responder.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/requester/injected.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/requester.h"
#include "engine/responder/peer_path.h"
#include "engine/responder/placement.h"
#include "engine/responder/responder.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/timers.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

// ns. How long the succession of an XRC_RECV queue pair may take (xrc_shared_qp.h).
constexpr uint64_t kSuccession = 5'000'000'000;
// ns. How long the process of an XRC SRQ may take to answer for the first time. An adapter would not need a
// processor for that.
constexpr uint64_t kFirstContact = 5'000'000'000;

struct Attempt {
  VendorError unreachable = VendorError::none;
  Response response{Answer::kGone};
  bool awaits_ack = false;  // carried out, and the acknowledgement is lost on purpose
};

// One attempt. The memory of both ends stays registered while the hazard guards are held.
Attempt attempt(Qp& qp, const SendOperation& operation, SendRequest& request) {
  RequesterContext& requester = qp.requester;
  const HazardRecords own = qp.process->hazards();
  VendorError target = VendorError::none;
  if (requester.xrc_targets) {
    if (qp.waiting == Waiting::kTransport) follow_responder(qp);
    target = select_target(requester, request.remote_srqn);
  }
  const HazardGuard guard(own, requester.path.adapter->slot());
  std::optional<HazardGuard> target_guard;
  if (requester.xrc_targets && target == VendorError::none)
    target_guard.emplace(own, requester.path.memory->slot());
  iovec ranges[PeerAdapter::kMaxRanges];
  LocalBytes local{ranges, 0};
  local.error = find_local_bytes(qp, operation, request, ranges, &local.count);
  if (local.error != VendorError::none && operation.sges != SgeUse::scatter)
    return {VendorError::none, {Answer::kLocal, local.error}};
  const uint64_t generation = requester.path.generation;
  const VendorError unreachable = check_path(requester);
  if (requester.path.responder_state != qp.fast.responder_state) allow_fast_path(qp);
  if (unreachable != VendorError::none) return {unreachable};
  if (requester.xrc_targets) {
    if (target == VendorError::none) target = check_target(requester);
    if (refuses_target(target)) return {VendorError::none, refuse(requester, request, target)};
    if (target != VendorError::none) return {target};
  }
  // The responder was reset: it does not know the chunks that came before.
  if (requester.path.generation != generation) request.done = 0;
  const Response response = respond(requester, operation, request, local);
  bool awaits_ack = false;
  if (faults::Injection* const injection = faults::injection();
      injection != nullptr && response.answer == Answer::kAck) [[unlikely]]
    awaits_ack = acknowledgement_is_lost(qp, request, *injection);
  const bool completed = response.answer == Answer::kAck && !awaits_ack && finish_request(qp, request);
  raise_both_events(qp, completed, [&] { raise_event_due(requester.path); });
  return {VendorError::none, response, awaits_ack};
}

// There is no peer. Errors of the request itself are found first.
Attempt without_path(Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const HazardGuard guard(qp.process->hazards(), qp.process->membership().slot());
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count;
  const VendorError error = find_local_bytes(qp, operation, request, ranges, &count);
  if (error == VendorError::none || operation.sges == SgeUse::scatter) return {VendorError::no_path};
  return {VendorError::none, {Answer::kLocal, error}};
}

// UC: the message was sent and dropped. The sender is not told.
bool is_lost(const Attempt& tried) {
  const Answer answer = tried.response.answer;
  return tried.unreachable != VendorError::none || answer == Answer::kRnr || answer == Answer::kNak ||
         answer == Answer::kSilence || answer == Answer::kGone;
}

class LocalTransport final : public Transport {
 public:
  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override {
    const uint32_t done_before = request.done;
    const Attempt tried =
        qp.requester.path.adapter ? attempt(qp, operation, request) : without_path(qp, operation, request);
    if (!is_acknowledged(qp.type) && is_lost(tried)) {
      complete_request(qp, request);
      return {SendOutcome::kCompleted};
    }
    if (tried.unreachable != VendorError::none)
      return unreachable(qp, tried.unreachable,
                         tried.unreachable == VendorError::peer_silent ? kFirstContact : 0);
    if (tried.awaits_ack) return {SendOutcome::kYield};
    switch (tried.response.answer) {
      case Answer::kAck:
        return {SendOutcome::kCompleted};
      case Answer::kPartial:
        // Nothing was moved: the responder must first scatter an earlier message. If it never does, it counts
        // as silent.
        if (request.done == done_before) return unreachable(qp, VendorError::peer_silent, 0);
        return {SendOutcome::kYield};
      case Answer::kBusy:
        return {SendOutcome::kBusy};
      case Answer::kRnr:
        return {SendOutcome::kRnr, VendorError::no_receive_posted, qp.requester.path.qp->min_rnr_timer};
      case Answer::kNak:
      case Answer::kLocal:
        return {SendOutcome::kFailed, tried.response.error};
      case Answer::kSilence:
        return unreachable(qp, VendorError::peer_silent, 0);
      case Answer::kGone:
        break;
    }
    return unreachable(qp, VendorError::peer_gone, 0);
  }

  bool is_synchronous() const override { return true; }
  uint32_t chunk_size() const override { return kChunkSize; }
  uint64_t patience_ns(const Qp& qp) const override {
    return transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt);
  }

  // For an XRC SRQ the request to be woken is left at the SRQ, otherwise at the queue pair.
  bool ask_for_wakeup(Qp& qp) override {
    PeerPath& path = qp.requester.path;
    if (!path.adapter) return false;
    const SharedReceiveRing& shared = path.shared_receives;
    if (qp.requester.xrc_targets)
      return path.target != nullptr && shared.ask_to_be_woken(qp.process->membership().worker());
    path.qp->requester_waits.store(1, std::memory_order_seq_cst);
    if (shared.shared != nullptr) shared.shared->requesters_wait.store(1, std::memory_order_seq_cst);
    return true;
  }

  // Another requester of the SRQ may have taken what was posted.
  bool is_wakeup_pending(const Qp& qp) override {
    const PeerPath& path = qp.requester.path;
    if (qp.requester.xrc_targets)
      return path.target != nullptr && path.shared_receives.is_asked_for(qp.process->membership().worker());
    return path.shared_receives.shared == nullptr ||
           path.qp->requester_waits.load(std::memory_order_seq_cst) != 0;
  }

  void abandon(Qp& qp) override {
    if (qp.requester.xrc_targets) abandon_current_wqe(qp.requester);
  }

 private:
  static SendResult unreachable(Qp& qp, VendorError error, uint64_t at_least) {
    // The owner of the responder has ended: its successor has to notice first.
    const bool follows =
        qp.requester.xrc_targets && qp.requester.path.adapter && qp.waiting != Waiting::kTransport;
    if (follows && follow_responder(qp)) at_least = std::max(at_least, kSuccession);
    return {SendOutcome::kUnreachable, error, 0, at_least};
  }
};

}  // namespace

Transport& local_transport() {
  static constinit LocalTransport transport;
  return transport;
}

}  // namespace verbena
