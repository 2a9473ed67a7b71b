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

// So many SRQs are remembered per QP; programs have one per process they send to.
constexpr size_t kMaxTargets = 256;
// For a process that is asked for its segment in the middle of a request, perhaps in the driver's turn. One that does not
// answer (stopped?) is silent, and asked after again with each try of the request.
constexpr int kPatienceMs = 100;

// Finds the SRQ's adapter and pins it: from here on it is that SRQ of that process or none.
VendorError resolve(RequesterContext& requester, uint32_t srqn, std::unique_ptr<XrcTarget>* out) {
  Process& process = *requester.process;
  uint32_t slot, index;
  if (!process.directory().find_srqn(srqn, &slot, &index)) return VendorError::remote_srq_unknown;
  auto target = std::make_unique<XrcTarget>();
  const uint32_t generation = process.directory().slot(slot).generation.load(std::memory_order_acquire);
  const int error = process.peers().get(process.home(), slot, generation, &target->adapter, {kPatienceMs});
  if (error == ETIMEDOUT) return VendorError::peer_silent;
  if (error != 0) {
    VERBENA_WARN("QP 0x%06x: cannot reach the adapter of SRQ 0x%06x (slot %u): errno %d", requester.qpn,
                 srqn, slot, error);
    return VendorError::peer_gone;
  }
  // Frames lead to the receiving queue pair's process, and from there no further.
  if (!target->adapter->is_within_reach()) {
    VERBENA_WARN(
        "QP 0x%06x: SRQ 0x%06x is of the process in slot %u, whose memory cannot be reached "
        "(docs/NETWORK.md)",
        requester.qpn, srqn, slot);
    return VendorError::remote_operation_failed;
  }
  const SegmentView& view = target->adapter->view();
  target->srqn = srqn;
  target->index = index;
  const Visit visit(process.directory(), process.home().slot(), slot);
  target->srq = view.srq(index);
  if (target->srq == nullptr || target->srq->in_use.load(std::memory_order_seq_cst) == 0 ||
      target->srq->srqn != srqn || target->srq->xrcd == 0)
    return VendorError::remote_srq_unknown;
  target->birth = target->srq->birth.load(std::memory_order_relaxed);
  target->receives = SharedReceiveRing::of(view, *target->srq);
  target->completion_queue = view.cq(target->srq->cq);
  if (target->receives.order_words == nullptr || target->completion_queue == nullptr)
    return VendorError::remote_srq_unknown;
  target->completions = CompletionRing::of(view, *target->completion_queue, &target->head);
  if (target->completions.entries == nullptr) return VendorError::remote_srq_unknown;
  *out = std::move(target);
  return VendorError::none;
}

bool still_there(const RequesterContext& requester, const XrcTarget& target) {
  return target.adapter->alive(requester.process->directory()) &&
         target.srq->in_use.load(std::memory_order_seq_cst) != 0 &&
         target.srq->birth.load(std::memory_order_relaxed) == target.birth;
}

void load(PeerPath& path, XrcTarget& target) {
  if (XrcTarget* last = path.target; last != nullptr) {
    last->first_landed_position = path.first_landed_position;
    last->last_landed_position = path.last_landed_position;
    last->has_landed = path.has_landed;
  }
  path.target = &target;
  path.memory = target.adapter.get();
  path.receive_pd = path.remote_pd = target.srq->pd;
  path.shared_receives = target.receives;
  path.completion_queue = target.completion_queue;
  path.completions = target.completions;
  path.first_landed_position = target.first_landed_position;
  path.last_landed_position = target.last_landed_position;
  path.has_landed = target.has_landed;
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
      abandon_in_hand(requester);
      load(path, **found);
      std::rotate(found, found + 1, known.end());
      return VendorError::none;
    }
    std::unique_ptr<XrcTarget> target;
    if (const VendorError error = resolve(requester, srqn, &target); error != VendorError::none) return error;
    abandon_in_hand(requester);
    // What is forgotten must not be what the path is about.
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
  return still_there(requester, target) && target.srq->xrcd == requester.path.qp->xrcd ? VendorError::none
                                                                         : VendorError::remote_srq_unknown;
}

void abandon_in_hand(RequesterContext& requester) {
  PeerPath& path = requester.path;
  const uint32_t in_hand = std::exchange(path.in_hand, 0);
  if (in_hand == 0 || path.target == nullptr) return;
  const XrcTarget& target = *path.target;
  const Visit visit(requester.process->directory(), requester.process->home().slot(), target.adapter->slot());
  if (!still_there(requester, target)) return;
  const CqProducer<CompletionRing> to{path.completions, *target.completion_queue, *target.adapter,
                                      requester.process->home().worker()};
  const Completion flushed{.qp_index = target.index,
                           .qp_birth = target.birth,
                           .index = in_hand - 1,
                           .status = IBV_WC_WR_FLUSH_ERR,
                           .flags = kCqeReceive | kCqeFromShared | kCqeXrc,
                           .vendor_err = static_cast<uint8_t>(VendorError::flushed)};
  if (append_completion(to, flushed, XrcSource{path.qp->qpn, requester.qpn}, true) == Room::kIgnored)
    target.receives.abandon(in_hand - 1);
}

}  // namespace verbena
