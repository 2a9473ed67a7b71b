// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_shared_qp.h"
#include "engine/xrc/xrc_request.h"
#include "engine/xrc/xrc_shared_qps.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/events/async_events.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "fabric/control_rpc.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// How long a verb waits for a queue pair that is between two owners, and for the owner's reply.
constexpr int64_t kBetween = 5'000'000'000;
constexpr int kAnswerMs = 5000;

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
    qp->proxy = std::make_unique<ProxyQp>();
    ProxyQp& proxy = proxy_of(*qp);
    if (int error = process.peers().get(process.membership(), found.slot, generation, &proxy.owner);
        error != 0) {
      VERBENA_WARN(xrc_unreachable, "ibv_open_qp: cannot reach the adapter of QP 0x%06x (slot %u): errno %d",
                   qpn, found.slot, error);
      return error == ENOMEM || error == ETIMEDOUT ? error : EINVAL;  // else it is gone
    }
    proxy.index = found.qp_index;
    proxy.there = proxy.owner->view().qp(found.qp_index);
    const SharedQp* there = proxy.there;
    if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != qpn ||
        there->type != IBV_QPT_XRC_RECV || there->xrcd != xrcd->number) {
      VERBENA_WARN(xrc_qp, "ibv_open_qp: QP 0x%06x is no XRC_RECV queue pair of this domain", qpn);
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
    if (int error = open_xrc_qp(directory, membership.slot(), membership.generation(), found, &proxy.entry);
        error != 0)
      return error;
    xrcd->users.fetch_add(1, std::memory_order_relaxed);
    if (int error = process.xrc_shared_qps().hold(qp.get()); error != 0) {
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

// Finds where the queue pair is now. Waits while it is between two owners. False: it has ended.
bool find_owner_of_shared_qp(Qp& qp, int64_t until, QpLocation* out) {
  for (;;) {
    const OwnerStatus owner_status = qp.process->xrc_shared_qps().find(qp, out);
    if (owner_status != OwnerStatus::kLater) return owner_status == OwnerStatus::kThere;
    if (now_ns() >= until) return false;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace

int ProxyQp::modify(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Process& process = *qp.process;
  XrcModifyRequest request{XrcModifyRequest::kModify, qp.shared->qpn, 0, 0, mask, {}, attr};
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) request.peer = find_peer(qp, attr);
  const int64_t until = now_ns() + int64_t{kAnswerMs} * 1'000'000;
  for (QpLocation now; find_owner_of_shared_qp(qp, until, &now);) {
    request.index = now.index;
    request.incarnation = now.incarnation;
    std::byte bytes[kMaxMessage];
    size_t size = 0;
    int error = 0;
    if (now.owner->slot() == process.membership().slot())
      size =
          process.xrc_shared_qps().reply(reinterpret_cast<const std::byte*>(&request), sizeof request, bytes);
    else
      error = send_request(slot_address(process.directory(), process.membership().node(), now.owner->slot(),
                                        now.owner->generation()),
                           &request, sizeof request, bytes, &size, kAnswerMs);
    XrcModifyReply reply{ESTALE};
    if (error == 0 && size == sizeof reply) std::memcpy(&reply, bytes, sizeof reply);
    const bool gone = error == ECONNREFUSED || error == ENOENT || error == ECONNRESET;
    if (error != 0 && !gone) {
      VERBENA_WARN(xrc_owner,
                   "ibv_modify_qp: QP 0x%06x: the process that made it (slot %u) does not answer: errno %d",
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

int ProxyQp::query(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  Process& process = *qp.process;
  *attr = {};
  init->cap = {};
  init->qp_type = qp.type;
  attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  QpLocation proxy;
  if (!find_owner_of_shared_qp(qp, now_ns() + kBetween, &proxy)) return 0;
  const HazardGuard guard(process.hazards(), proxy.owner->slot());
  const SharedQp& shared = *proxy.there;
  const ResponderState responder =
      ResponderState::unpack(shared.responder_state.load(std::memory_order_acquire));
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(responder.state);
  if (responder.state == IBV_QPS_RESET) return 0;
  read_path(shared, attr);
  attr->qp_access_flags = shared.access;
  if (responder.state == IBV_QPS_INIT) return 0;  // what is left in SharedQp is of the generation before
  attr->path_mtu = static_cast<ibv_mtu>(shared.path_mtu);
  attr->dest_qp_num = shared.dest_qpn;
  attr->min_rnr_timer = shared.min_rnr_timer;
  attr->max_dest_rd_atomic = shared.max_dest_rd_atomic;
  attr->rq_psn = shared.rq_psn;
  if (shared.requester_generation.load(std::memory_order_acquire) == responder.generation)
    attr->rq_psn = shared.expected_psn.load(std::memory_order_relaxed);
  return 0;
}

uint32_t close_proxy_qp(Qp* qp, uint64_t user_handle) {
  Process& process = *qp->process;
  process.xrc_shared_qps().let_go(qp);  // from here on no other thread changes the proxy
  close_xrc_domain(process.directory(), proxy_of(*qp).entry);
  if (proxy_of(*qp).owner->alive(process.directory())) proxy_of(*qp).owner->kick();
  const QpHandle& handle = qp->handles.front();
  const uint32_t read = take_back_events(*handle.context, user_handle, handle.async_events);
  handle.xrcd->users.fetch_sub(1, std::memory_order_release);
  delete qp;
  return read;
}

}  // namespace verbena
