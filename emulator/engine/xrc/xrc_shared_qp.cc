// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_shared_qp.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "engine/clock.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/xrc/shared_path.h"
#include "engine/xrc/xrc.h"
#include "fabric/control_rpc.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// Nobody is told when a process dies: who holds another's queue pair, or has an orphaned QP that others hold,
// looks so often.
constexpr int64_t kLook = 200'000'000;
constexpr int64_t kSoon = 10'000'000;

// How long a verb waits for a queue pair that is between two owners, and for the owner to answer.
constexpr int64_t kBetween = 5'000'000'000;
constexpr int kAnswerMs = 5000;

// Somebody in the owner's process has opened it again.
bool has_handle(Qp& qp) {
  std::lock_guard lock(qp.handles_mutex);
  return !qp.handles.empty();
}

}  // namespace

int open_proxy_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out) {
  Process& process = *context->process;
  const NodeDirectory& directory = process.directory();
  const NodeMembership& membership = process.membership();
  QpnEntry found;
  if (!directory.find_qpn(qpn, &found)) return EINVAL;
  const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
  try {
    auto qp = std::make_unique<Qp>();
    qp->proxy = std::make_shared<ProxyQp>();
    ProxyQp& proxy = *qp->proxy;
    if (int error = process.peers().get(process.membership(), found.slot, generation, &proxy.owner);
        error != 0) {
      VERBENA_WARN("ibv_open_qp: cannot reach the adapter of QP 0x%06x (slot %u): errno %d", qpn, found.slot,
                   error);
      return error == ENOMEM || error == ETIMEDOUT ? error : EINVAL;  // else it is gone
    }
    proxy.index = found.qp_index;
    proxy.there = proxy.owner->view().qp(found.qp_index);
    const SharedQp* there = proxy.there;
    if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != qpn ||
        there->type != IBV_QPT_XRC_RECV || there->xrcd != xrcd->number) {
      VERBENA_WARN("ibv_open_qp: QP 0x%06x is no XRC_RECV queue pair of this domain", qpn);
      return EINVAL;
    }
    proxy.incarnation = there->incarnation;
    proxy.events_seen = ToldEvents::count_of(there->events_told.load(std::memory_order_acquire));
    proxy.placeholder.qpn = qpn;
    proxy.placeholder.type = IBV_QPT_XRC_RECV;
    qp->context = context;
    qp->process = &process;
    qp->index = found.qp_index;
    qp->shared = &proxy.placeholder;
    qp->user_handle = user_handle;
    qp->type = IBV_QPT_XRC_RECV;
    qp->xrcd = xrcd;
    qp->handles.push_back({context, xrcd, user_handle, 0});
    if (int error = open_xrc_qp(directory, membership.node(), membership.slot(), membership.generation(),
                                found, &proxy.entry);
        error != 0)
      return error;
    xrcd->users.fetch_add(1, std::memory_order_relaxed);
    if (int error = process.add_proxy(qp.get()); error != 0) {
      close_xrc_domain(directory, proxy.entry);
      xrcd->users.fetch_sub(1, std::memory_order_release);
      return error;
    }
    *out = qp.release();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

namespace {

// Where the queue pair is now; waits while it is between two owners. False: it has ended.
bool find_owner_of_shared_qp(Qp& qp, int64_t until, QpLocation* out) {
  for (;;) {
    const OwnerStatus owner_status = qp.process->locate_shared_qp(qp, out);
    if (owner_status != OwnerStatus::kLater) return owner_status == OwnerStatus::kThere;
    if (now_ns() >= until) return false;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
}

// What one process asks of another that is the owner.
struct ControlRequest {
  static constexpr uint32_t kModify = 0x4d'43'52'58;  // "XRCM"
  uint32_t what;
  uint32_t qpn;
  uint32_t index;
  uint32_t incarnation;
  int32_t mask;
  PeerQp peer;
  ibv_qp_attr attr;
};
struct ControlReply {
  int32_t error;  // ESTALE: it is not here any more
};
static_assert(sizeof(ControlRequest) <= kMaxMessage && std::is_trivially_copyable_v<ControlRequest>);

}  // namespace

int modify_proxy_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Process& process = *qp.process;
  ControlRequest request{ControlRequest::kModify, qp.shared->qpn, 0, 0, mask, {}, attr};
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) request.peer = find_peer(qp, attr);
  const int64_t until = now_ns() + int64_t{kAnswerMs} * 1'000'000;
  for (QpLocation now; find_owner_of_shared_qp(qp, until, &now);) {
    request.index = now.index;
    request.incarnation = now.incarnation;
    std::byte bytes[kMaxMessage];
    size_t size = 0;
    int error = 0;
    if (now.owner->slot() == process.membership().slot())
      size = process.serve_shared_qp_request(reinterpret_cast<const std::byte*>(&request), sizeof request,
                                             bytes);
    else
      error =
          send_request(slot_folder(process.membership().node(), now.owner->slot(), now.owner->generation()),
                       &request, sizeof request, bytes, &size, kAnswerMs);
    ControlReply reply{ESTALE};
    if (error == 0 && size == sizeof reply) std::memcpy(&reply, bytes, sizeof reply);
    const bool gone = error == ECONNREFUSED || error == ENOENT || error == ECONNRESET;
    if (error != 0 && !gone) {
      VERBENA_WARN("ibv_modify_qp: QP 0x%06x: the process that made it (slot %u) does not answer: errno %d",
                   qp.shared->qpn, now.owner->slot(), error);
      return error;
    }
    if (error == 0 && reply.error != EAGAIN && reply.error != ESTALE) return reply.error;
    if (now_ns() >= until) return ETIMEDOUT;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
  return EIO;
}

size_t Process::serve_shared_qp_request(const std::byte* bytes, size_t size, std::byte* out) {
  ControlRequest request;
  if (size != sizeof request) return 0;
  std::memcpy(&request, bytes, size);
  if (request.what != ControlRequest::kModify) return 0;
  if (request.peer.slot >= kMaxSlots && request.peer.slot != UINT32_MAX) return 0;
  ControlReply reply{ESTALE};
  {
    std::lock_guard lock(doorbell_mutex_);
    Qp* qp = request.index < kMaxQpsPerProcess ? this->qp(request.index) : nullptr;
    if (qp != nullptr && !is_going(request.index) && qp->type == IBV_QPT_XRC_RECV &&
        qp->shared->qpn == request.qpn && qp->shared->incarnation == request.incarnation)
      reply.error = modify_for_another(*qp, request.attr, request.mask, request.peer);
  }
  std::memcpy(out, &reply, sizeof reply);
  return sizeof reply;
}

int query_proxy_qp(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  Process& process = *qp.process;
  *attr = {};
  init->cap = {};
  init->qp_type = qp.type;
  attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  QpLocation proxy;
  if (!find_owner_of_shared_qp(qp, now_ns() + kBetween, &proxy)) return 0;
  const HazardGuard guard(process.directory(), process.membership().slot(), proxy.owner->slot());
  const SharedQp& there = *proxy.there;
  const ResponderState responder =
      ResponderState::unpack(there.responder_state.load(std::memory_order_acquire));
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(responder.state);
  if (responder.state == IBV_QPS_RESET) return 0;
  read_path(there, attr);
  attr->qp_access_flags = there.access;
  if (responder.state == IBV_QPS_INIT) return 0;  // what is left there is of the life before
  attr->path_mtu = static_cast<ibv_mtu>(there.path_mtu);
  attr->dest_qp_num = there.dest_qpn;
  attr->min_rnr_timer = there.min_rnr_timer;
  attr->max_dest_rd_atomic = there.max_dest_rd_atomic;
  attr->rq_psn = there.rq_psn;
  if (there.requester_generation.load(std::memory_order_acquire) == responder.generation)
    attr->rq_psn = there.expected_psn.load(std::memory_order_relaxed);
  return 0;
}

uint32_t close_proxy_qp(Qp* qp, uint64_t user_handle) {
  Process& process = *qp->process;
  process.remove_proxy(qp);  // from here on nobody else changes what it stands for
  close_xrc_domain(process.directory(), qp->proxy->entry);
  if (qp->proxy->owner->alive(process.directory())) qp->proxy->owner->kick();
  const QpHandle& handle = qp->handles.front();
  const uint32_t read = take_back_events(*handle.context, user_handle, handle.async_events);
  handle.xrcd->users.fetch_sub(1, std::memory_order_release);
  delete qp;
  return read;
}

void tell_holders(Qp& qp, ibv_event_type type) {
  std::atomic<uint64_t>& told = qp.shared->events_told;
  told.store(ToldEvents::with(told.load(std::memory_order_relaxed), static_cast<uint8_t>(type)),
             std::memory_order_release);
  const Process& process = *qp.process;
  for_each_holder(process.directory(), qp.shared->qpn, [&](uint32_t slot, uint32_t generation) {
    kick_slot(process.directory(), qp.process->membership().node(), slot, generation);
  });
}

// ---- the process's part ----

int Process::add_proxy(Qp* qp) {
  {
    std::lock_guard lock(shared_qp_mutex_);
    try {
      proxies_.push_back(qp);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  membership_.kick();  // from now on the service thread looks
  return 0;
}

void Process::remove_proxy(Qp* qp) {
  std::lock_guard lock(shared_qp_mutex_);
  std::erase(proxies_, qp);
}

int Process::keep_orphaned(Qp* qp) {
  {
    std::lock_guard lock(shared_qp_mutex_);
    try {
      orphaned_.push_back({qp, false});
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  membership_.kick();
  return 0;
}

bool Process::adopt_orphaned(Qp* qp) {
  std::lock_guard lock(shared_qp_mutex_);
  const auto found = std::find_if(orphaned_.begin(), orphaned_.end(),
                                  [&](const OrphanedQp& orphaned) { return orphaned.qp == qp; });
  if (found == orphaned_.end()) return true;
  if (found->ending) return false;
  orphaned_.erase(found);
  return true;
}

OwnerStatus Process::locate_shared_qp(Qp& qp, QpLocation* out) {
  std::lock_guard lock(shared_qp_mutex_);
  const OwnerStatus owner_status = serve_proxy(qp);
  *out = *qp.proxy;
  return owner_status;
}

// What its owner has left word of, or that it is gone, and who comes after it.
OwnerStatus Process::serve_proxy(Qp& qp) {
  ProxyQp& proxy = *qp.proxy;
  if (proxy.lost) return OwnerStatus::kLost;
  if (proxy.there->incarnation == proxy.incarnation) raise_told_events(qp);
  const OwnerStatus owner_status = find_again(qp);
  if (owner_status == OwnerStatus::kLost) {
    proxy.lost = true;
    VERBENA_WARN("QP 0x%06x has ended with the process that made it", qp.shared->qpn);
    raise_qp_event(qp, IBV_EVENT_QP_FATAL);
  }
  return owner_status;
}

void Process::raise_told_events(Qp& qp) {
  ProxyQp& proxy = *qp.proxy;
  const uint64_t word = proxy.there->events_told.load(std::memory_order_acquire);
  const uint64_t missed = (ToldEvents::count_of(word) - proxy.events_seen) & 0xffff;
  proxy.events_seen = ToldEvents::count_of(word);
  for (int ago = static_cast<int>(std::min<uint64_t>(missed, ToldEvents::kKept)) - 1; ago >= 0; --ago)
    raise_qp_event(qp, static_cast<ibv_event_type>(ToldEvents::type(word, ago)));
}

// True: it has ended. Nothing here waits: whoever is at work in the queue pair, or holds the table's lock,
// may be stopped.
bool Process::end_orphaned(OrphanedQp& orphaned) {
  Qp& qp = *orphaned.qp;
  if (!orphaned.ending) {
    if (!end_xrc_qp(directory(), membership_.node(), membership_.slot(), qp.shared->qpn, false)) return false;
    qp.send_lock.lock();
    close_responder(qp, IBV_QPS_RESET);
    qp.send_lock.unlock();
    forget_qp(qp.index);
    orphaned.ending = true;
  }
  if (!hazards_released(directory(), membership_.slot(), qp.shared->dest_slot, kHazardPatience)) return false;
  qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  free_qp(&qp);
  return true;
}

int64_t Process::serve_shared_qps() {
  std::lock_guard lock(shared_qp_mutex_);
  bool between = false;
  for (Qp* qp : proxies_) between |= serve_proxy(*qp) == OwnerStatus::kLater;
  std::erase_if(orphaned_,
                [this](OrphanedQp& orphaned) { return has_handle(*orphaned.qp) || end_orphaned(orphaned); });
  if (proxies_.empty() && orphaned_.empty()) return kEndOfTime;
  const bool ending = std::any_of(orphaned_.begin(), orphaned_.end(),
                                  [](const OrphanedQp& orphaned) { return orphaned.ending; });
  return now_ns() + (ending || between ? kSoon : kLook);
}

}  // namespace verbena
