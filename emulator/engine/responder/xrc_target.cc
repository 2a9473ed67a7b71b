// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/xrc_target.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/completion/completion_writer.h"
#include "engine/objects/process.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// SRQs remembered per QP. Programs have one per process that they send to.
constexpr size_t kMaxTargets = 256;
// For a process that is asked for its segment in the middle of a request, perhaps under the progress lock. A
// process that does not answer may be stopped. It counts as silent, and is asked again with each attempt of
// the request.
constexpr int kPatienceMs = 100;

// Finds the adapter of the SRQ and pins it: from here on the target is that SRQ of that process or none.
VendorError resolve(RequesterContext& requester, uint32_t srqn, std::unique_ptr<XrcTarget>* out) {
  Process& process = *requester.process;
  uint32_t slot, index;
  if (!process.directory().find_srqn(srqn, &slot, &index)) return VendorError::remote_srq_unknown;
  auto target = std::make_unique<XrcTarget>();
  const uint32_t generation = process.directory().slot(slot).generation.load(std::memory_order_acquire);
  const int error =
      process.peers().get(process.membership(), slot, generation, &target->adapter, {kPatienceMs});
  if (error == ETIMEDOUT) return VendorError::peer_silent;
  if (error != 0) {
    VERBENA_WARN(xrc_unreachable, "QP 0x%06x: cannot reach the adapter of SRQ 0x%06x (slot %u): errno %d",
                 requester.qpn, srqn, slot, error);
    return VendorError::peer_gone;
  }
  // Frames reach the process of the receiving queue pair, and no other.
  if (!target->adapter->is_within_reach()) {
    VERBENA_WARN(xrc_unreachable,
                 "QP 0x%06x: SRQ 0x%06x is of the process in slot %u, whose memory cannot be reached "
                 "(docs/NETWORK.md)",
                 requester.qpn, srqn, slot);
    return VendorError::remote_operation_failed;
  }
  const SegmentView& view = target->adapter->view();
  target->srqn = srqn;
  target->index = index;
  const HazardGuard guard(process.hazards(), slot);
  target->srq = view.srq(index);
  if (target->srq == nullptr || target->srq->in_use.load(std::memory_order_seq_cst) == 0 ||
      target->srq->srqn != srqn || target->srq->xrcd == 0)
    return VendorError::remote_srq_unknown;
  target->incarnation = target->srq->incarnation.load(std::memory_order_relaxed);
  target->receives = SharedReceiveRing::of(view, *target->srq);
  target->completion_queue = view.cq(target->srq->cq);
  if (target->receives.order_entries == nullptr || target->completion_queue == nullptr)
    return VendorError::remote_srq_unknown;
  target->completions = CompletionRing::of(view, *target->completion_queue, &target->head);
  if (target->completions.entries == nullptr) return VendorError::remote_srq_unknown;
  *out = std::move(target);
  return VendorError::none;
}

bool still_there(const RequesterContext& requester, const XrcTarget& target) {
  return target.adapter->alive(requester.process->directory()) &&
         target.srq->in_use.load(std::memory_order_seq_cst) != 0 &&
         target.srq->incarnation.load(std::memory_order_relaxed) == target.incarnation;
}

void load(PeerPath& path, XrcTarget& target) {
  if (XrcTarget* last = path.target; last != nullptr) {
    last->first_eager_position = path.first_eager_position;
    last->last_eager_position = path.last_eager_position;
    last->has_eager = path.has_eager;
  }
  path.target = &target;
  path.memory = target.adapter.get();
  path.receive_pd = path.remote_pd = target.srq->pd;
  path.shared_receives = target.receives;
  path.completion_queue = target.completion_queue;
  path.completions = target.completions;
  path.first_eager_position = target.first_eager_position;
  path.last_eager_position = target.last_eager_position;
  path.has_eager = target.has_eager;
}

}  // namespace

VendorError select_target(RequesterContext& requester, uint32_t srqn) {
  PeerPath& path = requester.path;
  if (path.target != nullptr && path.target->srqn == srqn && still_there(requester, *path.target))
    return VendorError::none;
  std::vector<std::unique_ptr<XrcTarget>>& known = requester.xrc_targets->known;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& target) { return target->srqn == srqn; });
  try {
    if (found != known.end() && still_there(requester, **found)) {
      abandon_current_wqe(requester);
      load(path, **found);
      std::rotate(found, found + 1, known.end());
      return VendorError::none;
    }
    std::unique_ptr<XrcTarget> target;
    if (const VendorError error = resolve(requester, srqn, &target); error != VendorError::none) return error;
    abandon_current_wqe(requester);
    // The target that is dropped must not be the current one.
    load(path, *target);
    if (found != known.end())
      known.erase(found);
    else if (known.size() >= kMaxTargets)
      known.erase(known.begin());
    known.push_back(std::move(target));
  } catch (const std::bad_alloc&) {
    return VendorError::peer_gone;
  }
  return VendorError::none;
}

VendorError check_target(const RequesterContext& requester) {
  const XrcTarget& target = *requester.path.target;
  return still_there(requester, target) && target.srq->xrcd == requester.path.qp->xrcd
             ? VendorError::none
             : VendorError::remote_srq_unknown;
}

void abandon_current_wqe(RequesterContext& requester) {
  PeerPath& path = requester.path;
  const uint32_t current_wqe = std::exchange(path.current_wqe, 0);
  if (current_wqe == 0 || path.target == nullptr) return;
  const XrcTarget& target = *path.target;
  const HazardGuard guard(requester.process->hazards(), target.adapter->slot());
  if (!still_there(requester, target)) return;
  const CqProducer<CompletionRing> to{path.completions, *target.completion_queue, *target.adapter,
                                      requester.process->membership().worker()};
  const Completion flushed{.qp_index = target.index,
                           .qp_incarnation = target.incarnation,
                           .index = current_wqe - 1,
                           .status = IBV_WC_WR_FLUSH_ERR,
                           .flags = kCqeReceive | kCqeFromShared | kCqeXrc,
                           .vendor_err = static_cast<uint8_t>(VendorError::flushed)};
  if (append_completion(to, flushed, XrcSource{path.qp->qpn, requester.qpn}, true) == Room::kIgnored)
    target.receives.abandon(current_wqe - 1);
}

}  // namespace verbena
