// SPDX-License-Identifier: BSD-2-Clause
//
// Succession: the owner of an XRC_RECV queue pair ends before the other holders, and one of them becomes the
// owner (xrc_shared_qp.h). All state of the queue pair is in its SharedQp, which the holders have mapped.
#include <errno.h>

#include <new>
#include <utility>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/state_change.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "engine/xrc/xrc_shared_qp.h"
#include "engine/xrc/xrc_shared_qps.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// For the reply of a new owner that is asked for its segment. Two service threads that ask each other must
// both give up soon.
constexpr int kAttachMs = 50;
// The owner's successor may be dead as well. Holders that have not mapped it wait this long for the next one.
constexpr int64_t kSecondSuccession = 1'000'000'000;  // ns

// What the successor gets besides the attributes in SharedQp.
struct InheritedState {
  ibv_qp_state state = IBV_QPS_RESET;
  uint32_t rq_psn = 0;
};

// False: the queue pair had ended.
bool read_inherited_state(const SharedQp& old, uint32_t incarnation, InheritedState* out) {
  if (old.incarnation != incarnation) return false;
  ResponderState responder = ResponderState::unpack(old.responder_state.load(std::memory_order_acquire));
  if (old.in_use.load(std::memory_order_acquire) == 0) {
    if (old.left_in == 0) return false;
    // The owner is alive and has left the queue pair to the other holders.
    responder = {responder.generation - 1, static_cast<uint8_t>(old.left_in - 1)};
  }
  if (responder.state > IBV_QPS_ERR) return false;
  out->state = static_cast<ibv_qp_state>(responder.state);
  const bool fed = old.requester_generation.load(std::memory_order_acquire) == responder.generation;
  out->rq_psn = fed ? old.expected_psn.load(std::memory_order_relaxed) : old.rq_psn;
  return true;
}

void apply_inherited_state(Qp& successor, const SharedQp& old, const InheritedState& left) {
  SharedQp& shared = *successor.shared;
  shared.dest_qpn = successor.attr.dest_qp_num = old.dest_qpn;
  shared.dest_slot = old.dest_slot;
  shared.dest_slot_generation = old.dest_slot_generation;
  shared.dest_index = old.dest_index;
  shared.dest_incarnation = old.dest_incarnation;
  shared.access = successor.attr.qp_access_flags = old.access;
  shared.min_rnr_timer = successor.attr.min_rnr_timer = old.min_rnr_timer;
  shared.path_mtu = old.path_mtu;
  shared.max_dest_rd_atomic = successor.attr.max_dest_rd_atomic = old.max_dest_rd_atomic;
  shared.rq_psn = successor.attr.rq_psn = left.rq_psn;
  successor.attr.path_mtu = static_cast<ibv_mtu>(old.path_mtu);
  read_path(old, &successor.attr);
  publish_path(shared, successor.attr);
  shared.path.store(old.path.load(std::memory_order_relaxed), std::memory_order_release);
  successor.requester.psn = successor.attr.sq_psn;
  shared.requests_in.store(old.requests_in.load(std::memory_order_relaxed), std::memory_order_relaxed);
  shared.bytes_in.store(old.bytes_in.load(std::memory_order_relaxed), std::memory_order_relaxed);
  for (const auto word :
       {&PacketCounts::more_packets, &PacketCounts::response_bytes, &PacketCounts::more_responses})
    (shared.packets_in.*word)
        .store((old.packets_in.*word).load(std::memory_order_relaxed), std::memory_order_relaxed);
  // Pending flags that the old owner has not acted on.
  shared.pending_flags.store(old.pending_flags.load(std::memory_order_acquire), std::memory_order_release);
  if (change_quota(*successor.context, Counted::kResponderResources, "ibv_open_qp", 0,
                   old.max_dest_rd_atomic) == 0)
    successor.responder_resources = old.max_dest_rd_atomic;
  change_state(successor, left.state, Generation::kNext);
}

void kick_holders(Process& process, uint32_t qpn) {
  for_each_holder(process.directory(), qpn, [&](uint32_t slot, uint32_t generation) {
    kick_slot(process.directory(), process.membership().node(), slot, generation);
  });
}

}  // namespace

bool still_there(const Process& process, const QpLocation& proxy) {
  return proxy.owner->alive(process.directory()) &&
         proxy.there->in_use.load(std::memory_order_acquire) != 0 &&
         proxy.there->incarnation == proxy.incarnation;
}

OwnerStatus XrcSharedQps::attach(Qp& qp, const QpnEntry& entry, uint32_t generation) {
  ProxyQp& proxy = proxy_of(qp);
  std::shared_ptr<PeerAdapter> owner = process_.shared_self();
  if (entry.slot != process_.membership().slot() &&
      process_.peers().get(process_.membership(), entry.slot, generation, &owner, {kAttachMs}) != 0)
    return OwnerStatus::kLater;
  SharedQp* there = owner->view().qp(entry.qp_index);
  if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != entry.qpn ||
      there->type != IBV_QPT_XRC_RECV || there->xrcd != qp.xrcd->number)
    return OwnerStatus::kLost;
  proxy.owner = std::move(owner);
  proxy.index = entry.qp_index;
  proxy.incarnation = there->incarnation;
  proxy.there = there;
  proxy.events_seen = 0;  // a new owner has told none yet
  proxy.give_up_at = 0;
  return OwnerStatus::kThere;
}

// Becomes the owner. `entry`: the outdated entry of the directory; nullptr: it has none.
OwnerStatus XrcSharedQps::take_over(Qp& qp, const QpnEntry* entry) {
  ProxyQp& proxy = proxy_of(qp);
  const SharedQp& old = *proxy.there;
  const uint32_t qpn = qp.shared->qpn;
  // A requester that began a request before the owner ended may still advance the PSN.
  if (!hazards_released(process_.directory(), proxy.owner->slot(), old.dest_slot, kHazardPatience))
    return OwnerStatus::kLater;
  InheritedState left;
  if (!read_inherited_state(old, proxy.incarnation, &left)) return OwnerStatus::kLost;
  Qp* successor = nullptr;
  try {
    orphaned_.reserve(orphaned_.size() + 1);
    successor = new Qp;
  } catch (const std::bad_alloc&) {
    return OwnerStatus::kLater;
  }
  successor->context = qp.context;
  successor->xrcd = qp.xrcd;
  successor->type = IBV_QPT_XRC_RECV;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  if (set_up_qp(successor, init, qpn) != 0) return OwnerStatus::kLost;  // the device has no room for it here
  successor->xrcd->users.fetch_sub(1, std::memory_order_release);       // counts handles: this one has none
  apply_inherited_state(*successor, old, left);
  if (!process_.directory().take_over_qpn(qpn, entry, process_.membership().slot(), successor->index)) {
    process_.forget_qp(successor->index);
    process_.qp_is_gone(successor->index);
    successor->shared->in_use.store(0, std::memory_order_release);
    free_qp(successor);
    return OwnerStatus::kLater;  // another process was faster
  }
  orphaned_.push_back({successor, false});
  VERBENA_INFO("QP 0x%06x outlives the process that made it: it is this one's now", qpn);
  if (successor->shared->pending_flags.load(std::memory_order_relaxed) != 0)
    process_.self().report(*successor->shared);
  kick_holders(process_, qpn);
  return attach(qp, {qpn, process_.membership().slot(), successor->index},
                process_.membership().generation());
}

OwnerStatus XrcSharedQps::find_again(Qp& qp) {
  ProxyQp& proxy = proxy_of(qp);
  if (proxy.lost) return OwnerStatus::kLost;
  if (still_there(process_, proxy)) return OwnerStatus::kThere;
  QpnEntry entry;
  if (!process_.directory().find_qpn(qp.shared->qpn, &entry)) return take_over(qp, nullptr);
  const uint32_t generation =
      process_.directory().slot(entry.slot).generation.load(std::memory_order_acquire);
  const bool is_owners = entry.slot == proxy.owner->slot() && entry.qp_index == proxy.index;
  const bool lives = process_.directory().alive(entry.slot, generation);
  if (is_owners && (!lives || generation == proxy.owner->generation())) return take_over(qp, &entry);
  if (lives) return attach(qp, entry, generation);
  // A successor that is dead as well, and that this process has not mapped. Processes that have know more.
  if (proxy.give_up_at == 0) proxy.give_up_at = now_ns() + kSecondSuccession;
  return now_ns() < proxy.give_up_at ? OwnerStatus::kLater : OwnerStatus::kLost;
}

// ---- at the owner's ----

namespace {

// Leaves the queue pair to its other holders. Its SharedQp stays as it is, for them to read.
void leave_to_others(Qp& qp) {
  Process& process = *qp.process;
  const uint32_t qpn = qp.shared->qpn;
  qp.send_lock.lock();
  qp.shared->left_in = 1 + static_cast<uint32_t>(qp.state.load(std::memory_order_relaxed));
  close_responder(qp, IBV_QPS_RESET);
  qp.send_lock.unlock();
  process.forget_qp(qp.index);
  process.wait_for_hazards({"ibv_destroy_qp", "QP", qpn, true}, qp.shared->dest_slot);
  process.qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  kick_holders(process, qpn);
  give_quota(process, qp.shared->device, Counted::kQps);
  give_quota(process, qp.shared->device, Counted::kResponderResources, qp.responder_resources);
}

bool held_elsewhere(Process& process, uint32_t qpn) {
  bool held = false;
  for_each_holder(process.directory(), qpn,
                  [&](uint32_t slot, uint32_t) { held = held || slot != process.membership().slot(); });
  return held;
}

}  // namespace

std::vector<Qp*> XrcSharedQps::take_qps_of(Context& context) {
  Context* other = nullptr;
  {
    std::lock_guard lock(process_.contexts_mutex);
    for (Context* candidate : process_.contexts)
      if (candidate != &context && candidate->device_index == context.device_index) other = candidate;
  }
  std::vector<Qp*> taken;
  std::lock_guard shared(mutex_);
  std::lock_guard lock(process_.serving_mutex());
  const uint32_t qps = process_.qp_indices().ever_taken();
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = process_.qp(i);
    if (qp == nullptr || qp->type != IBV_QPT_XRC_RECV || process_.is_going(i)) continue;
    std::lock_guard handles(qp->handles_mutex);
    if (qp->context != &context) continue;
    // The kernel ends a context's handles with it as well. Here the program may still destroy them.
    if (other != nullptr)
      qp->context = other;
    else
      taken.push_back(qp);
  }
  if (other == nullptr)
    std::erase_if(orphaned_, [&](const OrphanedQp& orphaned) {
      return orphaned.qp->context == &context && !orphaned.ending;
    });
  return taken;
}

void XrcSharedQps::leave_context(Context& context) {
  try {
    for (Qp* qp : take_qps_of(context)) {
      const bool handled = [&] {
        std::lock_guard lock(qp->handles_mutex);
        return !qp->handles.empty();
      }();
      if (held_elsewhere(process_, qp->shared->qpn)) {
        leave_to_others(*qp);
        if (!handled) delete qp;
      } else if (!handled) {
        take_down_qp(*qp);
        free_qp(qp);
      }
    }
  } catch (const std::bad_alloc&) {
    // They end with the process.
  }
}

}  // namespace verbena
