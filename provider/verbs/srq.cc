// SPDX-License-Identifier: BSD-2-Clause
#include "observe/log.h"
#include "verbs/acknowledge.h"
#include "verbs/domain.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

// Fills in the fields that ibv_create_srq(3) fills in later (libibverbs/verbs.c): ibv_create_srq_ex(3) does
// not.
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq_init_attr_ex extended = {};
  extended.srq_context = attr->srq_context;
  extended.attr = attr->attr;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_PD;
  extended.pd = pd;
  ibv_srq* srq = create_srq_ex(pd->context, &extended);
  if (srq != nullptr) attr->attr = extended.attr;
  return srq;
}

namespace {

// As mlx5_create_srq_ex() (providers/mlx5/verbs.c): what was matched is read from an extended CQ. 0, or errno.
int check_tags(const ibv_context* context, const ibv_srq_init_attr_ex& attr) {
  constexpr uint32_t kNeeded = IBV_SRQ_INIT_ATTR_TM | IBV_SRQ_INIT_ATTR_CQ;
  if ((attr.comp_mask & kNeeded) == kNeeded && attr.cq != nullptr && attr.cq->context == context &&
      to_cq(attr.cq)->is_extended)
    return check_handles("ibv_create_srq_ex", attr.cq);
  VERBENA_WARN(srq_attributes,
               "ibv_create_srq_ex: comp_mask 0x%x: an SRQ for tag matching needs tm_cap and a CQ of this "
               "context that ibv_create_cq_ex() has made",
               attr.comp_mask);
  return EINVAL;
}

}  // namespace

// libibverbs passes basic SRQs to ibv_create_srq(3).
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TM | kXrc;
  if ((attr->comp_mask & ~kKnown) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_srq_ex: comp_mask 0x%x: the device offers the bits 0x%x",
                 attr->comp_mask, kKnown);
    return refuse(EOPNOTSUPP);
  }
  const ibv_srq_type type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC && type != IBV_SRQT_TM) {
    VERBENA_WARN(srq_attributes, "ibv_create_srq_ex: srq_type %u: there are basic, XRC and TM ones",
                 static_cast<unsigned>(type));
    return refuse(EOPNOTSUPP);
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr || attr->pd->context != context) {
    VERBENA_WARN(srq_attributes, "ibv_create_srq_ex: comp_mask 0x%x: it needs a PD of this context",
                 attr->comp_mask);
    return refuse(EINVAL);
  }
  if (const int error = check_handles("ibv_create_srq", attr->pd); error != 0) return refuse(error);
  XrcPlace xrc;
  if (type == IBV_SRQT_XRC) {
    if ((attr->comp_mask & kXrc) != kXrc || attr->xrcd->context != context || attr->cq->context != context) {
      VERBENA_WARN(
          srq_attributes,
          "ibv_create_srq_ex: comp_mask 0x%x: an XRC SRQ needs an XRC domain and a CQ of this context",
          attr->comp_mask);
      return refuse(EINVAL);
    }
    if (const int error = check_handles("ibv_create_srq_ex", attr->cq); error != 0) return refuse(error);
    xrc = {to_xrcd(attr->xrcd)->emulated, to_cq(attr->cq)->emulated};
  }
  if (type == IBV_SRQT_TM)
    if (const int error = check_tags(context, *attr); error != 0) return refuse(error);
  VerbsPd* pd = to_pd(attr->pd);
  bool from_domain = false;
  auto* srq = static_cast<VerbsSrq*>(allocate_in(pd, sizeof(VerbsSrq), Resource::kSrq, &from_domain));
  if (srq == nullptr) return refuse(ENOMEM);
  srq->from_domain = from_domain;
  const auto user_handle = reinterpret_cast<uintptr_t>(srq);
  const int error =
      type == IBV_SRQT_TM
          ? create_tag_srq(pd->emulated, &attr->attr, attr->tm_cap, to_cq(attr->cq)->emulated, user_handle,
                           &srq->emulated)
          : verbena::create_srq(pd->emulated, &attr->attr, xrc, user_handle, &srq->emulated);
  if (error != 0) {
    free_in(pd, srq, Resource::kSrq, from_domain);
    return refuse(error);
  }
  hold(pd);
  ibv_srq& ibv = srq->base;
  ibv.context = context;
  ibv.srq_context = attr->srq_context;
  ibv.pd = attr->pd;
  ibv.handle = srq_handle(srq->emulated);
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  return &ibv;
}

int get_srq_num(ibv_srq* srq, uint32_t* number) {
  *number = srq_number(to_srq(srq)->emulated);
  return 0;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask) {
  if (const int error = check_handles("ibv_modify_srq", srq); error != 0) return answer(error);
  return answer(verbena::modify_srq(to_srq(srq)->emulated, attr, attr_mask));
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (const int error = check_handles("ibv_query_srq", srq); error != 0) return answer(error);
  return answer(verbena::query_srq(to_srq(srq)->emulated, attr));
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const int error = verbena::post_srq_recv(to_srq(srq)->emulated, wr, bad_wr);
  return error;
}

int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  return verbena::post_srq_ops(to_srq(srq)->emulated, wr, bad_wr);
}

int destroy_srq(ibv_srq* ibv) {
  if (const int error = check_end("ibv_destroy_srq", ibv); error != 0) return answer(error);
  VerbsSrq* srq = to_srq(ibv);
  uint32_t async_events = 0;
  if (const int error = verbena::destroy_srq(srq->emulated, &async_events); error != 0) return answer(error);
  await_acknowledgements(ibv, "ibv_destroy_srq", {"SRQ", ibv->handle},
                         {{kAsyncEvents, ibv->events_completed, async_events}});
  VerbsPd* pd = to_pd(ibv->pd);
  free_in(pd, srq, Resource::kSrq, srq->from_domain);
  let_go(pd);
  return 0;
}

}  // namespace verbena::verbs
