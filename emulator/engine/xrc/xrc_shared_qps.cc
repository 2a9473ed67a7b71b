// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_shared_qps.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/events/async_events.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/xrc/xrc_request.h"
#include "engine/xrc/xrc_shared_qp.h"
#include "fabric/hazards.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// No event tells that a process has died. A process that holds the queue pair of another one, or has an
// orphaned QP, looks this often.
constexpr int64_t kLook = 200'000'000;
constexpr int64_t kSoon = 10'000'000;

// A thread of the owner has opened it again.
bool has_handle(Qp& qp) {
  std::lock_guard lock(qp.handles_mutex);
  return !qp.handles.empty();
}

}  // namespace

size_t XrcSharedQps::reply(const std::byte* bytes, size_t size, std::byte* out) {
  XrcModifyRequest request;
  if (size != sizeof request) return 0;
  std::memcpy(&request, bytes, size);
  if (request.what != XrcModifyRequest::kModify) return 0;
  if (request.peer.slot >= kMaxSlots && request.peer.slot != UINT32_MAX) return 0;
  XrcModifyReply reply{ESTALE};
  {
    std::lock_guard lock(process_.serving_mutex());
    Qp* qp = request.index < kMaxQpsPerProcess ? process_.qp(request.index) : nullptr;
    if (qp != nullptr && !process_.is_going(request.index) && qp->type == IBV_QPT_XRC_RECV &&
        qp->shared->qpn == request.qpn && qp->shared->incarnation == request.incarnation)
      reply.error = modify_for_another(*qp, request.attr, request.mask, request.peer);
  }
  std::memcpy(out, &reply, sizeof reply);
  return sizeof reply;
}

int XrcSharedQps::hold(Qp* qp) {
  {
    std::lock_guard lock(mutex_);
    try {
      proxies_.push_back(qp);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  process_.membership().kick();  // from now on the service thread looks
  return 0;
}

void XrcSharedQps::let_go(Qp* qp) {
  std::lock_guard lock(mutex_);
  std::erase(proxies_, qp);
}

int XrcSharedQps::keep_orphaned(Qp* qp) {
  {
    std::lock_guard lock(mutex_);
    try {
      orphaned_.push_back({qp, false});
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  process_.membership().kick();
  return 0;
}

bool XrcSharedQps::adopt_orphaned(Qp* qp) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(orphaned_.begin(), orphaned_.end(),
                                  [&](const OrphanedQp& orphaned) { return orphaned.qp == qp; });
  if (found == orphaned_.end()) return true;
  if (found->ending) return false;
  orphaned_.erase(found);
  return true;
}

OwnerStatus XrcSharedQps::find(Qp& qp, QpLocation* out) {
  std::lock_guard lock(mutex_);
  const OwnerStatus owner_status = serve_proxy(qp);
  *out = proxy_of(qp);
  return owner_status;
}

// Acts on the events that the owner has told, or on its end and succession.
OwnerStatus XrcSharedQps::serve_proxy(Qp& qp) {
  ProxyQp& proxy = proxy_of(qp);
  if (proxy.lost) return OwnerStatus::kLost;
  if (proxy.there->incarnation == proxy.incarnation) raise_told_events(qp);
  const OwnerStatus owner_status = find_again(qp);
  if (owner_status == OwnerStatus::kLost) {
    proxy.lost = true;
    VERBENA_WARN(xrc_owner, "QP 0x%06x has ended with the process that made it", qp.shared->qpn);
    raise_qp_event(qp, IBV_EVENT_QP_FATAL);
  }
  return owner_status;
}

void XrcSharedQps::raise_told_events(Qp& qp) {
  ProxyQp& proxy = proxy_of(qp);
  const uint64_t word = proxy.there->events_told.load(std::memory_order_acquire);
  const uint64_t missed = (ToldEvents::count_of(word) - proxy.events_seen) & 0xffff;
  proxy.events_seen = ToldEvents::count_of(word);
  for (int ago = static_cast<int>(std::min<uint64_t>(missed, ToldEvents::kKept)) - 1; ago >= 0; --ago)
    raise_qp_event(qp, static_cast<ibv_event_type>(ToldEvents::type(word, ago)));
}

// True: it has ended. Nothing here waits: a process that is at work in the queue pair, or holds the table's
// lock, may be stopped.
bool XrcSharedQps::end_orphaned(OrphanedQp& orphaned) {
  Qp& qp = *orphaned.qp;
  if (!orphaned.ending) {
    if (!end_xrc_qp(process_.directory(), process_.membership().slot(), qp.shared->qpn, false)) return false;
    qp.send_lock.lock();
    close_responder(qp, IBV_QPS_RESET);
    qp.send_lock.unlock();
    process_.forget_qp(qp.index);
    orphaned.ending = true;
  }
  if (!hazards_released(process_.directory(), process_.membership().slot(), qp.shared->dest_slot,
                        kHazardPatience))
    return false;
  process_.qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  free_qp(&qp);
  return true;
}

int64_t XrcSharedQps::serve() {
  std::lock_guard lock(mutex_);
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
