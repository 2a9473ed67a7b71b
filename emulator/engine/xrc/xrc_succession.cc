// SPDX-License-Identifier: BSD-2-Clause
//
// What becomes of an XRC_RECV queue pair whose maker ends before its other holders do: one of them takes it
// over (xrc_openings.h). All there is of it lies in its SharedQp, which the holders have mapped.
#include <errno.h>

#include <new>
#include <utility>

#include "emulator.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "engine/rules/clock.h"
#include "engine/xrc/xrc_openings.h"
#include "engine/xrc/xrc_shared_qps.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// The service thread asks a new maker for its segment: two that ask each other must both give in soon.
constexpr int kAttachMs = 50;
// So long a maker's successor may be dead itself, before those who have not met it give the queue pair up.
constexpr int64_t kSecondSuccession = 1'000'000'000;  // ns

// What goes over besides SharedQp's attributes.
struct Inheritance {
  ibv_qp_state state = IBV_QPS_RESET;
  uint32_t rq_psn = 0;
};

// False: there is nothing to inherit.
bool read_inheritance(const SharedQp& old, uint32_t birth, Inheritance* out) {
  if (old.birth != birth) return false;
  Gate gate = Gate::unpack(old.gate.load(std::memory_order_acquire));
  if (old.in_use.load(std::memory_order_acquire) == 0) {
    if (old.left_in == 0) return false;
    // Its maker has shut the gate, and lives on without it.
    gate = {gate.generation - 1, static_cast<uint8_t>(old.left_in - 1)};
  }
  if (gate.state > IBV_QPS_ERR) return false;
  out->state = static_cast<ibv_qp_state>(gate.state);
  const bool fed = old.feeding_generation.load(std::memory_order_acquire) == gate.generation;
  out->rq_psn = fed ? old.expected_psn.load(std::memory_order_relaxed) : old.rq_psn;
  return true;
}

void inherit(Qp& heir, const SharedQp& old, const Inheritance& left) {
  SharedQp& shared = *heir.shared;
  shared.dest_qpn = heir.attr.dest_qp_num = old.dest_qpn;
  shared.dest_slot = old.dest_slot;
  shared.dest_slot_generation = old.dest_slot_generation;
  shared.dest_index = old.dest_index;
  shared.dest_birth = old.dest_birth;
  shared.access = heir.attr.qp_access_flags = old.access;
  shared.min_rnr_timer = heir.attr.min_rnr_timer = old.min_rnr_timer;
  shared.path_mtu = old.path_mtu;
  shared.max_dest_rd_atomic = heir.attr.max_dest_rd_atomic = old.max_dest_rd_atomic;
  shared.rq_psn = heir.attr.rq_psn = left.rq_psn;
  heir.attr.path_mtu = static_cast<ibv_mtu>(old.path_mtu);
  read_path(old, &heir.attr);
  publish_path(shared, heir.attr);
  heir.requester.psn = heir.attr.sq_psn;
  shared.requests_in.store(old.requests_in.load(std::memory_order_relaxed), std::memory_order_relaxed);
  shared.bytes_in.store(old.bytes_in.load(std::memory_order_relaxed), std::memory_order_relaxed);
  // Of what feeders have left word and nobody has acted on.
  shared.sticky.store(old.sticky.load(std::memory_order_acquire), std::memory_order_release);
  if (change_quota(*heir.context, Counted::kResponderResources, "ibv_open_qp", 0, old.max_dest_rd_atomic) ==
      0)
    heir.responder_resources = old.max_dest_rd_atomic;
  const Gate gate = Gate::unpack(shared.gate.load(std::memory_order_relaxed));
  shared.gate.store(Gate{gate.generation + 1, static_cast<uint8_t>(left.state)}.pack(),
                    std::memory_order_seq_cst);
  heir.state.store(left.state, std::memory_order_release);
}

void kick_holders(Process& process, uint32_t qpn) {
  for_each_holder(process.directory(), qpn, [&](uint32_t slot, uint32_t generation) {
    kick_slot(process.directory(), process.home().node(), slot, generation);
  });
}

}  // namespace

bool still_there(const Process& process, const ForeignPlace& foreign) {
  return foreign.maker->alive(process.directory()) &&
         foreign.there->in_use.load(std::memory_order_acquire) != 0 && foreign.there->birth == foreign.birth;
}

Standing XrcSharedQps::attach(Qp& qp, const QpnEntry& entry, uint32_t generation) {
  ForeignQp& foreign = foreign_of(qp);
  std::shared_ptr<PeerAdapter> maker = process_.shared_self();
  if (entry.slot != process_.home().slot() && process_.peers().get(process_.home(), entry.slot, generation, &maker, {kAttachMs}) != 0)
    return Standing::kLater;
  SharedQp* there = maker->view().qp(entry.qp_index);
  if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != entry.qpn ||
      there->type != IBV_QPT_XRC_RECV || there->xrcd != qp.xrcd->number)
    return Standing::kLost;
  foreign.maker = std::move(maker);
  foreign.index = entry.qp_index;
  foreign.birth = there->birth;
  foreign.there = there;
  foreign.events_seen = 0;  // it has told none before it took the queue pair over
  foreign.give_up_at = 0;
  return Standing::kThere;
}

// `entry`: where the directory says that it is, which is not so any more; nullptr: the directory has
// forgotten it.
Standing XrcSharedQps::take_over(Qp& qp, const QpnEntry* entry) {
  ForeignQp& foreign = foreign_of(qp);
  const SharedQp& old = *foreign.there;
  const uint32_t qpn = qp.shared->qpn;
  // Whoever has begun a request while its maker lived may still move the PSN.
  if (!visitors_gone(process_.directory(), foreign.maker->slot(), old.dest_slot, kVisitPatience))
    return Standing::kLater;
  Inheritance left;
  if (!read_inheritance(old, foreign.birth, &left)) return Standing::kLost;
  Qp* heir = nullptr;
  try {
    orphans_.reserve(orphans_.size() + 1);
    heir = new Qp;
  } catch (const std::bad_alloc&) {
    return Standing::kLater;
  }
  heir->context = qp.context;
  heir->xrcd = qp.xrcd;
  heir->type = IBV_QPT_XRC_RECV;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  if (bring_to_life(heir, init, qpn) != 0) return Standing::kLost;  // the device has no room for it here
  heir->xrcd->users.fetch_sub(1, std::memory_order_release);        // handles count, and it has none
  inherit(*heir, old, left);
  if (!process_.directory().take_over_qpn(qpn, entry, process_.home().slot(), heir->index)) {
    process_.forget_qp(heir->index);
    process_.qp_is_gone(heir->index);
    heir->shared->in_use.store(0, std::memory_order_release);
    free_qp(heir);
    return Standing::kLater;  // somebody was faster
  }
  orphans_.push_back({heir, false});
  VERBENA_INFO("QP 0x%06x outlives the process that made it: it is this one's now", qpn);
  if (heir->shared->sticky.load(std::memory_order_relaxed) != 0) process_.call_attention();
  kick_holders(process_, qpn);
  return attach(qp, {qpn, process_.home().slot(), heir->index}, process_.home().generation());
}

Standing XrcSharedQps::find_again(Qp& qp) {
  ForeignQp& foreign = foreign_of(qp);
  if (foreign.lost) return Standing::kLost;
  if (still_there(process_, foreign)) return Standing::kThere;
  QpnEntry entry;
  if (!process_.directory().find_qpn(qp.shared->qpn, &entry)) return take_over(qp, nullptr);
  const uint32_t generation = process_.directory().slot(entry.slot).generation.load(std::memory_order_acquire);
  const bool makers = entry.slot == foreign.maker->slot() && entry.qp_index == foreign.index;
  const bool lives = process_.directory().alive(entry.slot, generation);
  if (makers && (!lives || generation == foreign.maker->generation())) return take_over(qp, &entry);
  if (lives) return attach(qp, entry, generation);
  // A successor that is dead as well, and that we have not met: those who have know more of the queue pair.
  if (foreign.give_up_at == 0) foreign.give_up_at = now_ns() + kSecondSuccession;
  return now_ns() < foreign.give_up_at ? Standing::kLater : Standing::kLost;
}

// ---- at the maker's ----

namespace {

// Its other holders go on with it; here it is no more. Its place in the table stays what it is, for them to
// read.
void leave_to_others(Qp& qp) {
  Process& process = *qp.process;
  const uint32_t qpn = qp.shared->qpn;
  qp.send_lock.lock();
  qp.shared->left_in = 1 + static_cast<uint32_t>(qp.state.load(std::memory_order_relaxed));
  shut_gate(qp, IBV_QPS_RESET);
  qp.send_lock.unlock();
  process.forget_qp(qp.index);
  process.wait_for_visitors(qp.shared->dest_slot);
  process.qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  kick_holders(process, qpn);
  give_quota(process, qp.shared->device, Counted::kQps);
  give_quota(process, qp.shared->device, Counted::kResponderResources, qp.responder_resources);
}

bool held_elsewhere(Process& process, uint32_t qpn) {
  bool held = false;
  for_each_holder(process.directory(), qpn,
                  [&](uint32_t slot, uint32_t) { held = held || slot != process.home().slot(); });
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
  const uint32_t qps = process_.view().header().qp_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = process_.qp(i);
    if (qp == nullptr || qp->type != IBV_QPT_XRC_RECV || process_.is_going(i)) continue;
    std::lock_guard handles(qp->openings_mutex);
    if (qp->context != &context) continue;
    // With the kernel a context takes its handles along, too; here the program may still destroy them.
    if (other != nullptr)
      qp->context = other;
    else
      taken.push_back(qp);
  }
  if (other == nullptr)
    std::erase_if(orphans_,
                  [&](const Orphan& orphan) { return orphan.qp->context == &context && !orphan.ending; });
  return taken;
}

void XrcSharedQps::leave_context(Context& context) {
  try {
    for (Qp* qp : take_qps_of(context)) {
      const bool handled = [&] {
        std::lock_guard lock(qp->openings_mutex);
        return !qp->openings.empty();
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
