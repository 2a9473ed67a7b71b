// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/cq.h"

#include "observe/log.h"
#include "verbs/acknowledge.h"
#include "verbs/domain.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

// ibv_create_cq(3) sets all fields of a CQ except `cqe` (libibverbs/device.c, verbs_init_cq). The record of a
// completion channel is the address of the ibv_cq.
int fill_cq(VerbsCq& cq, ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector,
            const CqOptions& options) {
  // The kernel finds a channel only in the context that created it (lookup_get_fd_uobject: EINVAL).
  if (channel != nullptr && channel->context != context) {
    VERBENA_WARN(cq_channel, "ibv_create_cq: channel with descriptor %d: it belongs to another context",
                 channel->fd);
    return EINVAL;
  }
  const int error =
      verbena::create_cq(to_context(context)->emulated, cqe, channel != nullptr ? channel->fd : -1,
                         comp_vector, reinterpret_cast<uintptr_t>(&cq), &cq.emulated, options);
  if (error != 0) return error;
  ibv_cq& ibv = cq.base.cq;
  ibv.context = context;
  ibv.handle = cq_handle(cq.emulated);
  ibv.cqe = cq_capacity(cq.emulated);
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector) {
  auto* cq = allocate<VerbsCq>();
  if (cq == nullptr) return nullptr;
  if (const int error = fill_cq(*cq, context, cqe, channel, comp_vector, {}); error != 0)
    return refuse(cq, error);
  return &cq->base.cq;
}

int destroy_cq(ibv_cq* ibv) {
  if (const int error = check_end("ibv_destroy_cq", ibv); error != 0) return answer(error);
  VerbsCq* cq = to_cq(ibv);
  uint32_t comp_events = 0;
  uint32_t async_events = 0;
  if (const int error = verbena::destroy_cq(cq->emulated, &comp_events, &async_events); error != 0) {
    return answer(error);
  }
  await_acknowledgements(ibv, "ibv_destroy_cq", {"CQ", ibv->handle},
                         {{kCompletionEvents, ibv->comp_events_completed, comp_events},
                          {kAsyncEvents, ibv->async_events_completed, async_events}});
  VerbsPd* domain = cq->domain;
  free_in(domain, cq, Resource::kCq, cq->from_domain);
  let_go(domain);
  return 0;
}

void cq_event(ibv_cq* cq) { verbena::cq_event(to_cq(cq)->emulated); }

int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc) {
  return verbena::poll_cq(to_cq(cq)->emulated, num_entries, wc);
}

// libibverbs/cmd.c, ibv_cmd_modify_cq: EINVAL for unknown attributes.
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  if (const int error = check_handles("ibv_modify_cq", cq); error != 0) return answer(error);
  if ((attr->attr_mask & ~static_cast<uint32_t>(IBV_CQ_ATTR_MODERATE)) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_modify_cq: CQ %u: attr_mask 0x%x: there is IBV_CQ_ATTR_MODERATE only",
                 cq->handle, attr->attr_mask);
    return answer(EINVAL);
  }
  if (attr->attr_mask == 0) return 0;
  return answer(verbena::modify_cq(to_cq(cq)->emulated, attr->moderate.cq_count, attr->moderate.cq_period));
}

int resize_cq(ibv_cq* ibv, int cqe) {
  if (const int error = check_handles("ibv_resize_cq", ibv); error != 0) return answer(error);
  VerbsCq* cq = to_cq(ibv);
  if (const int error = verbena::resize_cq(cq->emulated, cqe); error != 0) return answer(error);
  ibv->cqe = cq_capacity(cq->emulated);
  return 0;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  if (const int error = check_handles("ibv_req_notify_cq", cq); error != 0) return answer(error);
  return answer(verbena::req_notify_cq(to_cq(cq)->emulated, solicited_only != 0));
}

}  // namespace verbena::verbs
