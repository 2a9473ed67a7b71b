// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "engine/clock.h"
#include "engine/completion/completion.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"
#include "observe/mutant.h"

namespace verbena {
namespace {

// So many SRQs are remembered per QP; programs have one per process they send to.
constexpr size_t kMaxTargets = 256;
// For a process that is asked for its segment in the middle of a request, perhaps in the driver's turn. One that does not
// answer (stopped?) is silent, and asked after again with each try of the request.
constexpr int kPatienceMs = 100;

// Finds the SRQ's adapter and pins it: from here on it is that SRQ of that process or none.
VendorError resolve(Qp& qp, uint32_t srqn, std::unique_ptr<XrcTarget>* out) {
  Process& process = *qp.process;
  uint32_t slot, index;
  if (!process.directory().find_srqn(srqn, &slot, &index)) return VendorError::remote_srq_unknown;
  auto target = std::make_unique<XrcTarget>();
  const uint32_t generation = process.directory().slot(slot).generation.load(std::memory_order_acquire);
  const int error =
      process.peers().get(process.membership(), slot, generation, &target->adapter, {kPatienceMs});
  if (error == ETIMEDOUT) return VendorError::peer_silent;
  if (error != 0) {
    VERBENA_WARN("QP 0x%06x: cannot reach the adapter of SRQ 0x%06x (slot %u): errno %d", qp.shared->qpn,
                 srqn, slot, error);
    return VendorError::peer_gone;
  }
  // Frames lead to the receiving queue pair's process, and from there no further.
  if (!target->adapter->is_within_reach()) {
    VERBENA_WARN(
        "QP 0x%06x: SRQ 0x%06x is of the process in slot %u, whose memory cannot be reached "
        "(docs/NETWORK.md)",
        qp.shared->qpn, srqn, slot);
    return VendorError::remote_operation_failed;
  }
  const SegmentView& view = target->adapter->view();
  target->srqn = srqn;
  target->index = index;
  const HazardGuard guard(process.directory(), process.membership().slot(), slot);
  target->srq = view.srq(index);
  if (target->srq == nullptr || target->srq->in_use.load(std::memory_order_seq_cst) == 0 ||
      target->srq->srqn != srqn || target->srq->xrcd == 0)
    return VendorError::remote_srq_unknown;
  target->incarnation = target->srq->incarnation.load(std::memory_order_relaxed);
  target->receives = SharedReceiveRing::of(view, *target->srq);
  target->completion_queue = view.cq(target->srq->cq);
  if (target->receives.order_words == nullptr || target->completion_queue == nullptr)
    return VendorError::remote_srq_unknown;
  target->completions = CompletionRing::of(view, *target->completion_queue, &target->head);
  if (target->completions.entries == nullptr) return VendorError::remote_srq_unknown;
  *out = std::move(target);
  return VendorError::none;
}

bool still_there(const Qp& qp, const XrcTarget& target) {
  return target.adapter->alive(qp.process->directory()) &&
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

VendorError select_target(Qp& qp, uint32_t srqn) {
  PeerPath& path = qp.path;
  if (path.target != nullptr && (path.target->srqn == srqn || mutated("xrc-other-srq")) &&
      still_there(qp, *path.target))
    return VendorError::none;
  std::vector<std::unique_ptr<XrcTarget>>& known = qp.xrc_targets->known;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& target) { return target->srqn == srqn; });
  try {
    if (found != known.end() && still_there(qp, **found)) {
      abandon_current_wqe(qp);
      load(path, **found);
      std::rotate(found, found + 1, known.end());
      return VendorError::none;
    }
    std::unique_ptr<XrcTarget> target;
    if (const VendorError error = resolve(qp, srqn, &target); error != VendorError::none) return error;
    abandon_current_wqe(qp);
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

VendorError check_target(const Qp& qp) {
  const XrcTarget& target = *qp.path.target;
  return still_there(qp, target) && target.srq->xrcd == qp.path.qp->xrcd ? VendorError::none
                                                                         : VendorError::remote_srq_unknown;
}

bool follow_responder(Qp& qp) {
  constexpr int64_t kWakeAgain = 5'000'000;
  PeerPath& path = qp.path;
  Process& process = *qp.process;
  const NodeDirectory& directory = process.directory();
  const bool left = path.qp->in_use.load(std::memory_order_acquire) == 0 && path.qp->left_in != 0;
  if (path.qp->incarnation != path.incarnation || (path.adapter->alive(directory) && !left)) return false;
  QpnEntry found;
  std::shared_ptr<PeerAdapter> adapter;
  if (directory.find_qpn(qp.shared->dest_qpn, &found)) {
    const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
    const bool same = found.slot == path.adapter->slot() && generation == path.adapter->generation();
    if (!same && directory.alive(found.slot, generation) &&
        process.peers().get(process.membership(), found.slot, generation, &adapter, {kPatienceMs}) == 0) {
      SharedQp* there = adapter->view().qp(found.qp_index);
      if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 ||
          there->qpn != qp.shared->dest_qpn || there->type != IBV_QPT_XRC_RECV ||
          there->device >= directory.devices().count)
        return false;
      path.ports = 1u << qp.context->device_index | 1u << there->device;
      path.index = found.qp_index;
      path.incarnation = there->incarnation;
      path.qp = there;
      path.adapter = std::move(adapter);
      path.generation = path.responder_state = 0;
      return true;
    }
  }
  bool held = false;
  const bool wake = now_ns() >= qp.xrc_targets->wake_again_at;
  for_each_holder(directory, qp.shared->dest_qpn, [&](uint32_t slot, uint32_t generation) {
    held = true;
    if (wake) kick_slot(directory, process.membership().node(), slot, generation);
  });
  if (wake) qp.xrc_targets->wake_again_at = now_ns() + kWakeAgain;
  return held;
}

void abandon_current_wqe(Qp& qp) {
  PeerPath& path = qp.path;
  const uint32_t current_wqe = std::exchange(path.current_wqe, 0);
  if (current_wqe == 0 || path.target == nullptr) return;
  const XrcTarget& target = *path.target;
  const HazardGuard guard(qp.process->directory(), qp.process->membership().slot(), target.adapter->slot());
  if (!still_there(qp, target)) return;
  const Claim claim = claim_completion(path.completions, qp.process->membership().worker());
  if (claim.entry == nullptr && path.completions.ignores_overrun()) {
    target.receives.abandon(current_wqe - 1);
    return;
  }
  if (claim.entry == nullptr) {
    target.completion_queue->overrun.store(1, std::memory_order_release);
    target.adapter->view().header().doorbell.store(1, std::memory_order_release);
    target.adapter->kick();
    return;
  }
  Cqe& entry = *claim.entry;
  entry.qp_index = target.index;
  entry.qp_incarnation = target.incarnation;
  entry.index = current_wqe - 1;
  entry.byte_len = 0;
  entry.status = IBV_WC_WR_FLUSH_ERR;
  entry.opcode = 0;
  entry.vendor_err = static_cast<uint8_t>(VendorError::flushed);
  entry.flags = kCqeReceive | kCqeFromShared | kCqeXrc;
  const XrcSource source{path.qp->qpn, qp.shared->qpn};
  std::memcpy(entry.payload, &source, sizeof source);
  publish_completion(path.completions, claim, CqeKind::kPublished);
  raise_completion_event(*target.completion_queue, *target.adapter, true);
}

// ---- domains (ibv_open_xrcd(3)) ----

int open_xrcd(Context* context, int fd, int flags, Xrcd** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (int error = take_quota(*context, Counted::kXrcds, "ibv_open_xrcd"); error != 0) return error;
  auto* xrcd = new (std::nothrow) Xrcd;
  if (xrcd == nullptr) {
    give_quota(*context, Counted::kXrcds);
    return ENOMEM;
  }
  xrcd->context = context;
  const NodeMembership& membership = process.membership();
  const int error =
      open_xrc_domain(process.directory(), membership.node(), membership.slot(), membership.generation(),
                      context->device_index, fd, flags, &xrcd->entry, &xrcd->number);
  if (error != 0) {
    VERBENA_WARN("ibv_open_xrcd: descriptor %d, oflags 0x%x: errno %d", fd, flags, error);
    give_quota(*context, Counted::kXrcds);
    delete xrcd;
    return error;
  }
  *out = xrcd;
  return 0;
}

int close_xrcd(Xrcd* xrcd) {
  Process& process = *xrcd->context->process;
  if (!process.dead()) {
    if (const uint32_t users = xrcd->users.load(std::memory_order_acquire);
        users != 0 && !mutated("xrc-domain-not-busy")) {
      VERBENA_WARN("ibv_close_xrcd: %u SRQs and queue pairs still belong to it", users);
      return EBUSY;
    }
    close_xrc_domain(process.directory(), xrcd->entry);
    give_quota(*xrcd->context, Counted::kXrcds);
  }
  delete xrcd;
  return 0;
}

}  // namespace verbena
