// SPDX-License-Identifier: BSD-2-Clause
//
// Changes of a queue pair's state and attributes (ibv_modify_qp(3)). What is allowed is in qp_state_table.h
// and qp_attributes.h; this file has what each change does.
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/events/async_events.h"
#include "engine/objects/context.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/migration.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/qp_state/state_change.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "engine/requester/requester.h"
#include "engine/rules/address_port.h"
#include "engine/rules/device_attributes.h"
#include "engine/rules/pacing.h"
#include "engine/rules/privilege.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "engine/rules/qp_attributes.h"
#include "engine/rules/qp_state_table.h"
#include "engine/rules/route.h"
#include "engine/rules/send_rules.h"
#include "fabric/hazards.h"
#include "observe/log.h"

namespace verbena {
namespace {

int refuse_transition(const Qp& qp, ibv_qp_state from, const ibv_qp_state& to, int mask, int error,
                      int offending) {
  if (!logs(LogLevel::kWarn)) return error;
  if (offending == 0) {
    VERBENA_WARN(qp_transition, "ibv_modify_qp: QP 0x%06x: there is no way from %s (%u) to %s (%u)",
                 qp.shared->qpn, name_of_state(from), number_in(from), name_of_state(to), number_in(to));
  }
  for (int bit = 1; bit != 0 && bit <= offending; bit <<= 1)
    if ((offending & bit) != 0)
      VERBENA_WARN(qp_attribute_mask, "ibv_modify_qp: QP 0x%06x: %s to %s: %s %s", qp.shared->qpn,
                   name_of_state(from), name_of_state(to), name_of_attribute_bit(bit),
                   (mask & bit) != 0 ? "must not be set" : "is missing");
  return error;
}

// Copies the attributes that `mask` names.
void remember(ibv_qp_attr& kept, const ibv_qp_attr& attr, int mask) {
  const auto copy = [&](int bit, auto member) {
    if ((mask & bit) != 0) kept.*member = attr.*member;
  };
  copy(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  copy(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  copy(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  copy(IBV_QP_PORT, &ibv_qp_attr::port_num);
  copy(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  copy(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  copy(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  copy(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  copy(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  copy(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  copy(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  copy(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  copy(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  copy(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
  copy(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_ah_attr);
  copy(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_pkey_index);
  copy(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_port_num);
  copy(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_timeout);
  copy(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  if ((mask & IBV_QP_RQ_PSN) != 0) kept.rq_psn = psn_of(attr.rq_psn);
  if ((mask & IBV_QP_SQ_PSN) != 0) kept.sq_psn = psn_of(attr.sq_psn);
}

// Under send_lock. Requests that wait for the old rate are tried again (to_state()). check_path() opens or
// closes the fast path.
void pace(Qp& qp, const PacingLimits& limits) {
  qp.pacing = pacing_of(limits, qp.requester.mtu);
  qp.requester.longest_chunk = piece_of(qp.pacing, UINT32_MAX);
  qp.requester.path.responder_state = 0;
  qp.fast = {};
}

// Port, P_Key and migration. A peer may arm or migrate the connection at the same time.
void publish_place(Qp& qp, int mask) {
  const DeviceDescription& device = *qp.context->device;
  std::atomic<uint64_t>& word = qp.shared->path;
  uint64_t seen = word.load(std::memory_order_relaxed), next = 0;
  do {
    QpPath path = QpPath::unpack(seen);
    if ((mask & IBV_QP_PORT) != 0) path.port = qp.attr.port_num;
    // RAW_PACKET has no P_Key.
    if ((mask & IBV_QP_PKEY_INDEX) != 0) path.pkey = device.pkey(qp.attr.pkey_index);
    if ((mask & IBV_QP_ALT_PATH) != 0) {
      path.other_port = qp.attr.alt_port_num;
      path.other_pkey = device.pkey(qp.attr.alt_pkey_index);
    }
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0) path.migration = static_cast<uint8_t>(qp.attr.path_mig_state);
    next = path.pack();
  } while (!word.compare_exchange_weak(seen, next, std::memory_order_seq_cst));
}

// Responder attributes that may change while requests arrive: the requester reads them with each request.
void publish(Qp& qp, int mask) {
  SharedQp& shared = *qp.shared;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) shared.access = qp.attr.qp_access_flags;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) shared.min_rnr_timer = qp.attr.min_rnr_timer;
  if ((mask & IBV_QP_QKEY) != 0) shared.qkey.store(qp.attr.qkey, std::memory_order_relaxed);
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) shared.max_dest_rd_atomic = qp.attr.max_dest_rd_atomic;
  publish_place(qp, mask);
  if (qp.type == IBV_QPT_XRC_RECV) publish_path(shared, qp.attr);
}

// Where the paths of a connected queue pair lead. `path` has found the peer.
void aim(const Qp& qp, const ibv_qp_attr& attr, PeerPath* path) {
  const DeviceTable& table = qp.process->directory().devices();
  const uint32_t device = path->qp->device % kMaxDevices, own = qp.context->device_index;
  path->port = find_port(attr.ah_attr, table.devices[device]);
  path->ports = port_bit(own, attr.port_num) | port_bit(device, path->port);
  path->other_port = attr.alt_port_num != 0 ? find_port(attr.alt_ah_attr, table.devices[device]) : uint8_t{0};
  path->other_ports = port_bit(own, attr.alt_port_num) | port_bit(device, path->other_port);
}

// Under send_lock. The path of a connected queue pair has changed: the next request is checked again.
void aim_again(Qp& qp) {
  PeerPath& path = qp.requester.path;
  if (!path.adapter || path.qp == nullptr) return;
  aim(qp, qp.attr, &path);
  path.responder_state = 0;
  qp.fast = {};
}

// Finds the queue pair that `attr` connects `qp` to, and pins it: from here on the peer is that queue pair of
// that process, or none.
void resolve_path(const Qp& qp, const ibv_qp_attr& attr, PeerPath* path) {
  Process& process = *qp.process;
  QpnEntry found;
  if (!process.directory().find_qpn(attr.dest_qp_num, &found)) {
    VERBENA_INFO("QP 0x%06x: nobody on this node has QP number 0x%06x", qp.shared->qpn, attr.dest_qp_num);
    return;
  }
  const uint32_t generation = process.directory().slot(found.slot).generation.load(std::memory_order_acquire);
  std::shared_ptr<PeerAdapter> adapter;
  if (int error = process.peers().get(process.membership(), found.slot, generation, &adapter); error != 0) {
    VERBENA_WARN(qp_unreachable, "QP 0x%06x: cannot reach the adapter of QP 0x%06x (slot %u): errno %d",
                 qp.shared->qpn, attr.dest_qp_num, found.slot, error);
    return;
  }
  SharedQp* there = adapter->view().qp(found.qp_index);
  if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 ||
      there->qpn != attr.dest_qp_num || there->device >= process.directory().devices().count)
    return;
  path->qp = there;
  aim(qp, attr, path);
  if (path->port == 0) {
    *path = {};
    VERBENA_WARN(qp_other_device, "QP 0x%06x: the address given does not belong to the device of QP 0x%06x",
                 qp.shared->qpn, attr.dest_qp_num);
    return;
  }
  path->index = found.qp_index;
  path->incarnation = there->incarnation;
  path->adapter = std::move(adapter);
}

PeerQp peer_of(const PeerPath& path) {
  if (!path.adapter) return {};
  return {path.adapter->slot(), path.adapter->generation(), path.index, path.incarnation};
}

// False: a peer still uses the queue pair, and the caller may not wait. The next call continues.
bool to_reset(Qp& qp, bool may_wait) {
  qp.send_lock.lock();
  close_responder(qp, IBV_QPS_RESET);
  qp.waiting = Waiting::kNothing;
  qp.drain_event_due = false;
  qp.sq_next = qp.sq_posted;
  qp.requester.psn = 0;
  qp.fast = {};
  const PeerPath old = std::exchange(qp.requester.path, PeerPath{});
  qp.transport = &transport_without_frames(qp.type);
  const std::shared_ptr<Transport> old_remote = std::exchange(qp.frame_path, nullptr);
  qp.send_lock.unlock();
  if (may_wait)
    qp.process->wait_for_hazards({"ibv_modify_qp", "QP", qp.shared->qpn, true}, qp.shared->dest_slot);
  else if (!hazards_released(qp.process->directory(), qp.process->membership().slot(), qp.shared->dest_slot,
                             kHazardPatience))
    return false;
  std::lock_guard receive(qp.recv_lock);
  qp.flush_receives.store(false, std::memory_order_release);
  purge_completions(qp);
  forget_receives(qp);
  // Running numbers continue, so that slots and laps stay valid. Everything posted is dropped.
  const uint64_t posted = qp.rq_posted;
  qp.rq_freed.store(posted, std::memory_order_release);
  qp.shared->rq_taken.store(posted, std::memory_order_release);
  qp.shared->bounce_ring_freed.store(qp.shared->bounce_ring_written.load(std::memory_order_acquire),
                                     std::memory_order_release);
  qp.sq_freed.store(qp.sq_posted, std::memory_order_release);
  qp.shared->pending_flags.store(0, std::memory_order_release);
  qp.shared->requester_waits.store(0, std::memory_order_release);
  qp.attr = {};
  qp.shared->path.store(0, std::memory_order_release);
  if (qp.type == IBV_QPT_XRC_RECV) publish_path(*qp.shared, qp.attr);
  qp.pacing = {};
  qp.requester.longest_chunk = UINT32_MAX;
  return true;
}

// A peer on another node. For threads that wait for hazard guards, this process acts for it.
PeerQp peer_elsewhere(Process& process) {
  return {process.membership().slot(), process.membership().generation(), kRemoteIndex, 0};
}

int enter_rtr(Qp& qp, const PeerQp& peer, PeerPath path, std::shared_ptr<Transport> remote) {
  SharedQp& shared = *qp.shared;
  std::lock_guard send(qp.send_lock);
  if (qp.state.load(std::memory_order_acquire) != IBV_QPS_INIT) return EINVAL;  // its CQ has failed meanwhile
  shared.dest_qpn = qp.attr.dest_qp_num;
  // The service thread may still look up the requester of the generation before.
  std::atomic_ref(shared.dest_slot).store(peer.slot, std::memory_order_relaxed);
  shared.dest_slot_generation = peer.slot_generation;
  shared.dest_index = peer.index;
  shared.dest_incarnation = peer.incarnation;
  shared.path_mtu = static_cast<uint8_t>(qp.attr.path_mtu);
  shared.rq_psn = qp.attr.rq_psn;
  if (!is_unconnected(qp.type)) qp.requester.mtu = mtu_bytes(qp.attr.path_mtu);
  qp.requester.path = std::move(path);
  qp.frame_path = std::move(remote);
  qp.transport = qp.frame_path ? qp.frame_path.get() : &transport_without_frames(qp.type);
  begin_flight(qp);
  change_state(qp, IBV_QPS_RTR, Generation::kNext);
  return 0;
}

// `known`: the peer, found by the process that asked; nullptr: it is to be found here.
int to_rtr(Qp& qp, const PeerQp* known) {
  PeerPath path;
  Network* others = qp.process->network();
  const bool connects = !is_unconnected(qp.type);
  std::shared_ptr<Transport> remote = others != nullptr && connects ? others->path_to(qp, qp.attr) : nullptr;
  if (known == nullptr && connects && !remote) resolve_path(qp, qp.attr, &path);
  if (path.adapter && !path.adapter->is_within_reach()) {
    others = &qp.process->network_or_begin();
    remote = others->path_within(*path.adapter, qp.attr.dest_qp_num);
    path = {};
  }
  const PeerQp peer = remote ? peer_elsewhere(*qp.process) : known != nullptr ? *known : peer_of(path);
  if (remote) {
    path.ports = port_bit(qp.context->device_index, qp.attr.port_num);
    publish_path(*qp.shared, qp.attr);
  }
  const int error = enter_rtr(qp, peer, std::move(path), remote);
  if (error == 0 && remote) others->connect(qp, remote);
  if (error == 0 && others != nullptr && qp.type == IBV_QPT_UD) others->receive_datagrams(qp);
  return error;
}

// INIT, RTS and SQD: the generation stays.
int to_state(Qp& qp, ibv_qp_state from, ibv_qp_state to, int mask) {
  std::lock_guard send(qp.send_lock);
  // A peer may have put the QP into ERR meanwhile.
  if (qp.state.load(std::memory_order_acquire) != from) return EINVAL;
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) qp.requester.psn = qp.attr.sq_psn;
  if (to == IBV_QPS_INIT) qp.shared->rq_posted.store(qp.rq_posted, std::memory_order_relaxed);
  change_state(qp, to, Generation::kSame);
  if (to == IBV_QPS_SQD) {
    qp.drain_event_due = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && qp.attr.en_sqd_async_notify != 0;
    progress_send_queue(qp, false);
  } else if (to == IBV_QPS_RTS && qp.sq_next != qp.sq_posted) {
    if (progress_send_queue(qp, false) != kEndOfTime || qp.sq_next != qp.sq_posted)
      qp.process->scheduler().add(&qp);
  }
  return 0;
}

void to_error(Qp& qp) {
  qp.send_lock.lock();
  enter_error(qp);
  qp.send_lock.unlock();
  // Usually done already. A peer that is stopped in the middle of a request delays it. Then the service
  // thread does it later.
  if (!flush_receive_queue(qp, 10 * kHazardPatience)) qp.process->self().report(*qp.shared);
}

// Under modify_mutex. `peer`: for another process, and without waiting (EAGAIN).
int change(Qp* qp, const ibv_qp_attr* attr, int mask, const PeerQp* peer, PacingLimits pacing = {}) {
  const ibv_qp_state from = qp->state.load(std::memory_order_acquire);
  const char* why = nullptr;
  int offending = 0;
  int error = (mask & IBV_QP_STATE) != 0 ? check_transition(qp->type, from, attr->qp_state, mask, &offending)
                                         : check_transition(qp->type, from, from, mask, &offending);
  if (error != 0)
    return refuse_transition(*qp, from, (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from, mask, error,
                             offending);
  mask &= ~ignored_attribute_bits(qp->type);
  AttributeLimits limits = attribute_limits(*qp->context->device);
  limits.current_state = from;
  limits.port = qp->attr.port_num;
  limits.has_alternate = qp->attr.alt_port_num != 0;
  limits.privileged_qkey = (mask & IBV_QP_QKEY) != 0 && may_set_controlled_qkeys();
  if (from == IBV_QPS_SQD) {
    std::lock_guard send(qp->send_lock);
    limits.sq_draining = qp->waiting != Waiting::kNothing;
  }
  uint64_t value = 0;
  error = check_attributes(limits, qp->type, *attr, mask, &why, &value);
  if (error != 0) {
    VERBENA_WARN(qp_attribute_value, "ibv_modify_qp: QP 0x%06x: %s: it is %llu", qp->shared->qpn, why,
                 static_cast<unsigned long long>(value));
    return error;
  }
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
  pacing.rate_kbps = attr->rate_limit;
  uint32_t resources = qp->responder_resources;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) resources = attr->max_dest_rd_atomic;
  if (to == IBV_QPS_RESET) resources = 0;
  error = change_quota(*qp->context, Counted::kResponderResources, "ibv_modify_qp", qp->responder_resources,
                       resources);
  if (error != 0) return error;
  qp->responder_resources = resources;
  bool has_migrated = false;
  {
    std::lock_guard send(qp->send_lock);
    has_migrated =
        (mask & IBV_QP_PATH_MIG_STATE) != 0 && attr->path_mig_state == IBV_MIG_MIGRATED && migrate(*qp);
    remember(qp->attr, *attr, mask);
    publish(*qp, mask);
    if ((mask & IBV_QP_AV) != 0)
      qp->requester.route = route_of(qp->attr.ah_attr, qp->attr.port_num, *qp->context->device,
                                     qp->process->directory().devices());
    constexpr int kPaths = IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_PORT | IBV_QP_PKEY_INDEX;
    if ((mask & kPaths) != 0 && from != IBV_QPS_RESET && from != IBV_QPS_INIT) aim_again(*qp);
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr->path_mig_state == IBV_MIG_REARM) arm_migration(*qp);
    if ((mask & IBV_QP_RATE_LIMIT) != 0) pace(*qp, pacing);
  }
  if (has_migrated) raise_qp_event(*qp, IBV_EVENT_PATH_MIG);
  switch (to) {
    case IBV_QPS_RESET:
      if (!to_reset(*qp, peer == nullptr)) return EAGAIN;
      break;
    case IBV_QPS_ERR:
      to_error(*qp);
      break;
    case IBV_QPS_RTR:
      return to_rtr(*qp, peer);
    default:
      return to_state(*qp, from, to, mask);
  }
  return 0;
}

}  // namespace

int modify_qp(Qp* qp, const ibv_qp_attr* attr, int mask) {
  if (int error = usable(*qp->context); error != 0) return error;
  if (qp->proxy) return qp->proxy->modify(*qp, *attr, mask);
  // As mlx5 (drivers/infiniband/hw/mlx5/qp.c, mlx5_ib_modify_qp()).
  if (qp->rss != nullptr) {
    VERBENA_WARN(qp_states_absent,
                 "ibv_modify_qp: QP 0x%06x: a QP that spreads over work queues has no states",
                 qp->shared->qpn);
    return EOPNOTSUPP;
  }
  act_on_pending_flags(*qp);
  std::lock_guard modify(qp->modify_mutex);
  return change(qp, attr, mask, nullptr);
}

int modify_qp_rate_limit(Qp* qp, const ibv_qp_rate_limit_attr* attr) {
  if (int error = usable(*qp->context); error != 0) return error;
  if (qp->context->device->limits.qp_rate_limit_max == 0) {
    VERBENA_WARN(
        rate_limit,
        "ibv_modify_qp_rate_limit: QP 0x%06x: rate_limit %u: the device paces nothing (packet_pacing_caps)",
        qp->shared->qpn, attr->rate_limit);
    return EOPNOTSUPP;
  }
  // providers/mlx5/verbs.c, mlx5_modify_qp_rate_limit().
  if (attr->comp_mask != 0 ||
      (attr->rate_limit == 0 && (attr->max_burst_sz != 0 || attr->typical_pkt_sz != 0))) {
    VERBENA_WARN(
        rate_limit,
        "ibv_modify_qp_rate_limit: QP 0x%06x: rate_limit %u, max_burst_sz %u, typical_pkt_sz %u, comp_mask "
        "0x%x: %s",
        qp->shared->qpn, attr->rate_limit, attr->max_burst_sz, attr->typical_pkt_sz, attr->comp_mask,
        attr->comp_mask != 0 ? "comp_mask is 0" : "without a rate there are no bursts and packets");
    return EINVAL;
  }
  if (qp->proxy) {
    VERBENA_WARN(rate_limit,
                 "ibv_modify_qp_rate_limit: QP 0x%06x: rate_limit %u: an XRC_RECV QP sends nothing",
                 qp->shared->qpn, attr->rate_limit);
    return EINVAL;
  }
  act_on_pending_flags(*qp);
  std::lock_guard modify(qp->modify_mutex);
  ibv_qp_attr wanted{};
  wanted.rate_limit = attr->rate_limit;
  return change(qp, &wanted, IBV_QP_RATE_LIMIT, nullptr,
                {.burst_bytes = attr->max_burst_sz, .packet_bytes = attr->typical_pkt_sz});
}

int modify_for_another(Qp& qp, const ibv_qp_attr& attr, int mask, const PeerQp& peer) {
  if (int error = usable(*qp.context); error != 0) return error;
  act_on_pending_flags(qp);
  const std::unique_lock modify(qp.modify_mutex, std::try_to_lock);
  return modify.owns_lock() ? change(&qp, &attr, mask, &peer) : EAGAIN;
}

PeerQp find_peer(const Qp& qp, const ibv_qp_attr& attr) {
  PeerPath path;
  resolve_path(qp, attr, &path);
  return peer_of(path);
}

}  // namespace verbena
