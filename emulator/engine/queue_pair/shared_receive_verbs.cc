// SPDX-License-Identifier: BSD-2-Clause
//
// The shared receive queues of the program (ibv_create_srq(3), ibv_modify_srq(3), ibv_post_srq_recv(3)).
#include <errno.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "emulator.h"
#include "engine/completion/tag_operations.h"
#include "engine/events/async_events.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/post/rendezvous.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/receive/tag_matching.h"
#include "engine/rules/device_attributes.h"
#include "engine/rules/program_enum.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "keep_errno.h"
#include "observe/log.h"

namespace verbena {
namespace {

int check_attributes(const DeviceLimits& limits, const ibv_srq_attr& attr) {
  const struct {
    const char* name;
    uint32_t value;
    uint64_t limit;
  } rules[] = {{"max_wr", attr.max_wr, limits.max_srq_wr}, {"max_sge", attr.max_sge, limits.max_srq_sge}};
  for (const auto& rule : rules) {
    if (rule.value <= rule.limit) continue;
    VERBENA_WARN(capability_exceeded, "ibv_create_srq: %s %u: the device has %llu", rule.name, rule.value,
                 static_cast<unsigned long long>(rule.limit));
    return EINVAL;
  }
  return 0;
}

// A size that the program asks for, as the device gives it: a power of two, but never more than the limit.
uint32_t rounded_room(const DeviceLimits& limits, uint32_t max_wr) {
  return static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(std::max(max_wr, 1u)), limits.max_srq_wr));
}

// rxe_srq.c, rxe_srq_chk_attr(): of the device, at least one, and not below the limit that is armed.
int check_resize(const Srq& srq, const ibv_srq_attr& attr, uint32_t armed_limit) {
  const uint64_t most = srq.context->device->limits.max_srq_wr;
  if (attr.max_wr >= 1 && attr.max_wr <= most && attr.max_wr >= armed_limit) return 0;
  VERBENA_WARN(srq_modify,
               "ibv_modify_srq: SRQ 0x%06x: max_wr %u: must be 1 to %llu, and at least its limit (%u)",
               srq.shared->srqn, attr.max_wr, static_cast<unsigned long long>(most), armed_limit);
  return EINVAL;
}

// Requesters that found no WQE have asked to be woken: at their QP, with a flag here.
void wake_requesters(Srq& srq) {
  const KeepErrno guard;
  if (srq.shared->requesters_wait.exchange(0, std::memory_order_acq_rel) == 0) return;
  std::vector<std::shared_ptr<PeerAdapter>> requesters;
  {
    std::lock_guard lock(srq.qps_mutex);
    for (uint32_t index : srq.qps) {
      Qp* qp = srq.process->qp(index);
      if (qp == nullptr || qp->shared->requester_waits.exchange(0, std::memory_order_acq_rel) == 0) continue;
      qp->send_lock.lock();
      if (qp->requester.path.adapter) requesters.push_back(qp->requester.path.adapter);
      qp->send_lock.unlock();
    }
  }
  for (const auto& requester : requesters) requester->kick();
  if (Network* const network = srq.context->process->network(); network != nullptr) network->receive_posted();
  // XRC: a requester that sends to this SRQ is not the peer of any queue pair of this process.
  const Process& process = *srq.process;
  for (std::atomic<uint32_t>& waiter : srq.shared->waiters) {
    if (waiter.load(std::memory_order_relaxed) == 0) continue;
    const uint32_t worker = waiter.exchange(0, std::memory_order_acq_rel) & ~SharedSrq::kWaits;
    if (!process.directory().worker_alive(worker)) continue;
    const uint32_t slot = Worker::unpack(worker).slot;
    kick_slot(process.directory(), srq.process->membership().node(), slot,
              process.directory().slot(slot).generation.load(std::memory_order_acquire));
  }
}

}  // namespace

namespace {

// What an SRQ has besides its receive requests.
struct SrqKind {
  XrcPlace xrc;
  const ibv_tm_cap* tags = nullptr;  // completions of tag matching go to tag_cq
  Cq* tag_cq = nullptr;
};

int check_kind(const DeviceLimits& limits, const SrqKind& kind) {
  if (kind.tags == nullptr) return 0;
  if (limits.max_num_tags == 0) {
    VERBENA_WARN(feature_absent, "ibv_create_srq_ex: the device matches no tags");
    return EOPNOTSUPP;
  }
  // mlx5_ib_create_srq() (hw/mlx5/srq.c) refuses longer lists.
  if (kind.tags->max_num_tags >= 1 && kind.tags->max_num_tags <= limits.max_num_tags &&
      kind.tags->max_ops <= limits.max_tag_ops)
    return 0;
  VERBENA_WARN(capability_exceeded, "ibv_create_srq_ex: max_num_tags %u, max_ops %u: the device has %llu and %llu",
               kind.tags->max_num_tags, kind.tags->max_ops, static_cast<unsigned long long>(limits.max_num_tags),
               static_cast<unsigned long long>(limits.max_tag_ops));
  return EINVAL;
}

int create_any_srq(Pd* pd, ibv_srq_attr* attr, const SrqKind& kind, uint64_t user_handle, Srq** out) {
  const XrcPlace& xrc = kind.xrc;
  Process& process = *pd->context->process;
  if (int error = usable(*pd->context); error != 0) return error;
  if ((xrc.xrcd == nullptr) != (xrc.cq == nullptr)) {
    VERBENA_WARN(srq_attributes, "ibv_create_srq_ex: an XRC SRQ needs both an XRC domain and a CQ");
    return EINVAL;
  }
  const DeviceLimits& limits = pd->context->device->limits;
  if (limits.max_srq == 0) {
    VERBENA_WARN(feature_absent, "ibv_create_srq: the device has no SRQs");
    return EOPNOTSUPP;
  }
  if (int error = check_kind(limits, kind); error != 0) return error;
  if (int error = check_attributes(limits, *attr); error != 0) return error;
  if (int error = take_quota(*pd->context, Counted::kSrqs, "ibv_create_srq"); error != 0) return error;
  const uint32_t room = rounded_room(limits, attr->max_wr);
  Srq* srq = nullptr;
  if (int error = make_shared_queue(process, pd->handle, room, attr->max_sge, &srq); error != 0) {
    VERBENA_WARN(no_memory, "ibv_create_srq: max_wr %u, max_sge %u: there is no memory for them",
                 attr->max_wr, attr->max_sge);
    give_quota(*pd->context, Counted::kSrqs);
    return error;
  }
  const bool whole = kind.tags == nullptr || make_tags(*srq, *kind.tag_cq, kind.tags->max_num_tags,
                                                       std::max(kind.tags->max_ops, 1u)) == 0;
  const uint32_t number =
      whole ? process.directory().claim_srqn(process.membership().slot(), srq->index) : 0;
  if (number == 0) {
    unmake_shared_queue(srq);
    give_quota(*pd->context, Counted::kSrqs);
    return ENOMEM;
  }
  srq->shared->srqn = number;
  srq->context = pd->context;
  srq->pd = pd;
  srq->user_handle = user_handle;
  pd->users.fetch_add(1, std::memory_order_relaxed);
  if (xrc.xrcd != nullptr) {
    srq->xrcd = xrc.xrcd;
    srq->cq = xrc.cq;
    srq->shared->xrcd = xrc.xrcd->number;
    srq->shared->cq = xrc.cq->index;
    xrc.xrcd->users.fetch_add(1, std::memory_order_relaxed);
    xrc.cq->users.fetch_add(2, std::memory_order_relaxed);  // any number of producers
  }
  if (kind.tags != nullptr) {
    srq->tags->starter = &rendezvous();
    kind.tag_cq->users.fetch_add(2, std::memory_order_relaxed);
  }
  attr->max_wr = srq->room;
  attr->max_sge = srq->ring.max_sge;
  *out = srq;
  return 0;
}

}  // namespace

int create_srq(Pd* pd, ibv_srq_attr* attr, const XrcPlace& xrc, uint64_t user_handle, Srq** out) {
  return create_any_srq(pd, attr, {.xrc = xrc}, user_handle, out);
}

int create_tag_srq(Pd* pd, ibv_srq_attr* attr, const ibv_tm_cap& tags, Cq* cq, uint64_t user_handle,
                   Srq** out) {
  return create_any_srq(pd, attr, {.xrc = {}, .tags = &tags, .tag_cq = cq}, user_handle, out);
}

int post_srq_ops(Srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  if (usable(*srq->context) != 0) {
    *bad_wr = wr;
    return EIO;
  }
  const char* why = nullptr;
  const int error = post_tag_operations(*srq, wr, bad_wr, &why);
  if (error != 0)
    VERBENA_WARN(tag_operation, "ibv_post_srq_ops: SRQ 0x%06x, wr_id 0x%llx, opcode %u: %s", srq->shared->srqn,
                 static_cast<unsigned long long>((*bad_wr)->wr_id), number_in((*bad_wr)->opcode), why);
  return error;
}

uint32_t srq_number(const Srq* srq) { return srq->shared->srqn; }
uint32_t srq_handle(const Srq* srq) { return srq->index; }
bool is_of(const Srq* srq, const Context* context) { return srq->context->file == context->file; }

int modify_srq(Srq* srq, const ibv_srq_attr* attr, int attr_mask) {
  if (int error = usable(*srq->context); error != 0) return error;
  if ((attr_mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) != 0) {
    VERBENA_WARN(srq_modify,
                 "ibv_modify_srq: SRQ 0x%06x: mask 0x%x: there are IBV_SRQ_LIMIT and IBV_SRQ_MAX_WR",
                 srq->shared->srqn, attr_mask);
    return EINVAL;
  }
  const bool resizes = (attr_mask & IBV_SRQ_MAX_WR) != 0, arms = (attr_mask & IBV_SRQ_LIMIT) != 0;
  std::lock_guard modify(srq->modify_mutex);
  const uint32_t limit = arms ? attr->srq_limit : srq->shared->limit.load(std::memory_order_acquire);
  uint32_t room = srq->room;
  if (resizes) {
    if (int error = check_resize(*srq, *attr, limit); error != 0) return error;
    room = rounded_room(srq->context->device->limits, attr->max_wr);
  }
  if (arms && limit > room) {
    VERBENA_WARN(srq_modify, "ibv_modify_srq: limit %u: the SRQ has room for %u requests", limit, room);
    return EINVAL;
  }
  if (resizes) {
    uint32_t in_use = 0;
    if (int error = resize_shared_queue(*srq, attr->max_wr, room, &in_use); error != 0) {
      VERBENA_WARN(srq_modify, "ibv_modify_srq: SRQ 0x%06x: max_wr %u: %s (%u are posted or not polled)",
                   srq->shared->srqn, attr->max_wr,
                   error == EINVAL ? "fewer than are in use" : "there is no memory for them", in_use);
      return error;
    }
  }
  if (!arms) return 0;
  srq->shared->limit.store(attr->srq_limit, std::memory_order_seq_cst);
  if (srq->ring.disarm_if_below_limit()) srq->process->self().report(*srq->shared);
  return 0;
}

int query_srq(Srq* srq, ibv_srq_attr* attr) {
  if (int error = usable(*srq->context); error != 0) return error;
  attr->max_wr = srq->room;
  attr->max_sge = srq->ring.max_sge;
  attr->srq_limit = srq->shared->limit.load(std::memory_order_acquire);
  return 0;
}

int post_srq_recv(Srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (usable(*srq->context) != 0) {
    *bad_wr = wr;
    return EIO;
  }
  const char* why = nullptr;
  const int error = post_to_shared_queue(*srq, wr, bad_wr, &why);
  if (error != 0)
    VERBENA_WARN(receive_request,
                 "ibv_post_srq_recv: SRQ 0x%06x, wr_id 0x%llx, %d SGEs: %s (room for %u requests of %u SGEs)",
                 srq->shared->srqn, static_cast<unsigned long long>((*bad_wr)->wr_id), (*bad_wr)->num_sge,
                 why, srq->room.load(), srq->ring.max_sge);
  if (srq->shared->requesters_wait.load(std::memory_order_relaxed) != 0) wake_requesters(*srq);
  return error;
}

void add_user(Srq& srq, uint32_t qp_index) {
  srq.users.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard lock(srq.qps_mutex);
  srq.qps.push_back(qp_index);
}

void remove_user(Srq& srq, uint32_t qp_index) {
  {
    std::lock_guard lock(srq.qps_mutex);
    std::erase(srq.qps, qp_index);
  }
  srq.users.fetch_sub(1, std::memory_order_release);
}

void raise_srq_limit_if_reached(Srq& srq) {
  if (srq.context == nullptr || srq.shared->limit_reached.load(std::memory_order_acquire) == 0) return;
  if (srq.shared->limit_reached.exchange(0, std::memory_order_acq_rel) == 0) return;
  raise_srq_event(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
}

int destroy_srq(Srq* srq, uint32_t* async_events) {
  Process& process = *srq->process;
  *async_events = 0;
  if (process.dead()) return 0;
  if (srq->users.load(std::memory_order_acquire) != 0) {
    VERBENA_WARN(object_in_use, "ibv_destroy_srq: SRQ 0x%06x: %u queue pairs still use it", srq->shared->srqn,
                 srq->users.load());
    return EBUSY;
  }
  process.directory().release_srqn(srq->shared->srqn, process.membership().slot());
  srq->shared->in_use.store(0, std::memory_order_seq_cst);
  process.forget_srq(srq->index);
  process.wait_for_hazards({"ibv_destroy_srq", "SRQ", srq->shared->srqn, true});
  give_quota(*srq->context, Counted::kSrqs);
  if (srq->cq != nullptr) {
    {
      std::lock_guard lock(srq->cq->lock);
      srq->cq->consumer.for_each([&](Cqe& entry, bool) {
        return (entry.flags & kCqeXrc) != 0 && entry.qp_index == srq->index &&
               entry.qp_incarnation == srq->shared->incarnation;
      });
    }
    srq->cq->users.fetch_sub(2, std::memory_order_release);
    if (srq->xrcd != nullptr) srq->xrcd->users.fetch_sub(1, std::memory_order_release);
  }
  *async_events = take_back_events(*srq->context, srq->user_handle, srq->async_events.load());
  srq->pd->users.fetch_sub(1, std::memory_order_release);
  unmake_shared_queue(srq);
  return 0;
}

}  // namespace verbena
