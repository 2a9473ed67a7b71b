// SPDX-License-Identifier: BSD-2-Clause
#include <cstring>

#include "observe/log.h"
#include "rdma_core/qp_mark.h"
#include "verbs/acknowledge.h"
#include "verbs/domain.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"
#include "verbs/wr.h"

namespace verbena::verbs {
namespace {

// Attributes that ibv_query_qp(3) can return: not IBV_QP_RATE_LIMIT and later ones (libibverbs/cmd.c,
// ibv_cmd_query_qp()).
constexpr int kQueriedAttributes = IBV_QP_RATE_LIMIT - 1;
constexpr int kKnownAttributes = kQueriedAttributes | IBV_QP_RATE_LIMIT;

// The kernel finds an object only in the context that created it.
bool belongs_to(const ibv_context* context, const ibv_cq* cq) {
  return cq == nullptr || cq->context == context;
}

// Makes a new QP extended, for ibv_qp_to_qp_ex(3). False: no memory.
bool extend(VerbsQp& qp, const ibv_qp_cap& cap, uint64_t send_ops_flags) {
  const size_t mark_offset = rdma_core::installed_qp_mark_offset();
  if (mark_offset == 0 || mark_offset + sizeof(uint32_t) > sizeof(qp.base.room)) return false;
  qp.arena = make_wr_arena(cap, to_pd(qp.base.qp.pd));
  if (qp.arena == nullptr) return false;
  define_send_ops(&qp.base.qp_ex, qp.base.qp.qp_type, send_ops_flags);
  const uint32_t mark = PABI_QP_EX;
  memcpy(qp.base.room + mark_offset, &mark, sizeof(mark));
  return true;
}

int refuse_mask(const char* verb, const ibv_qp& qp, int mask, int known) {
  VERBENA_WARN(qp_known_bits, "%s: QP 0x%06x: attr_mask 0x%x: there are the bits 0x%x", verb, qp.qp_num,
               static_cast<unsigned>(mask), static_cast<unsigned>(known));
  return answer(EOPNOTSUPP);
}

Cq* emulated(ibv_cq* cq) { return cq == nullptr ? nullptr : to_cq(cq)->emulated; }

}  // namespace

// Fills in the fields that ibv_cmd_create_qp of libibverbs fills in for other providers (libibverbs/cmd_qp.c,
// set_qp).
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (!belongs_to(pd->context, attr->send_cq) || !belongs_to(pd->context, attr->recv_cq) ||
      (attr->srq != nullptr && attr->srq->context != pd->context)) {
    VERBENA_WARN(other_context, "ibv_create_qp: PD %u: a CQ or the SRQ given belongs to another context",
                 pd->handle);
    return refuse(EINVAL);
  }
  if (const int error = check_handles("ibv_create_qp", pd, attr->send_cq, attr->recv_cq, attr->srq);
      error != 0)
    return refuse(error);
  Srq* srq = attr->srq != nullptr ? to_srq(attr->srq)->emulated : nullptr;
  bool from_domain = false;
  auto* qp = static_cast<VerbsQp*>(allocate_in(to_pd(pd), sizeof(VerbsQp), Resource::kQp, &from_domain));
  if (qp == nullptr) return refuse(ENOMEM);
  qp->from_domain = from_domain;
  const int error =
      verbena::create_qp(to_pd(pd)->emulated, attr, emulated(attr->send_cq), emulated(attr->recv_cq),
                         reinterpret_cast<uintptr_t>(qp), &qp->emulated, srq);
  if (error != 0) {
    free_in(to_pd(pd), qp, Resource::kQp, from_domain);
    return refuse(error);
  }
  hold(to_pd(pd));
  ibv_qp& ibv = qp->base.qp;
  ibv.context = pd->context;
  ibv.qp_context = attr->qp_context;
  ibv.pd = pd;
  ibv.send_cq = attr->send_cq;
  ibv.recv_cq = attr->recv_cq;
  ibv.srq = attr->srq;
  ibv.handle = qp_handle(qp->emulated);
  ibv.qp_num = qp_number(qp->emulated);
  ibv.state = IBV_QPS_RESET;
  ibv.qp_type = attr->qp_type;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  return &ibv;
}

// One creation flag is supported. The others concern packet headers and RSS.
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (attr->qp_type == IBV_QPT_XRC_RECV) return create_xrc_recv_qp(context, attr);
  if ((attr->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)) != 0)
    return create_rss_qp(context, attr);
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr->comp_mask & ~kKnown) != 0) {
    VERBENA_WARN(unknown_bits, "ibv_create_qp_ex: comp_mask 0x%x: the device offers the bits 0x%x",
                 attr->comp_mask, kKnown);
    return refuse(EOPNOTSUPP);
  }
  const uint32_t flags = (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? attr->create_flags : 0;
  if ((flags & ~uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) {
    VERBENA_WARN(
        qp_create_flags,
        "ibv_create_qp_ex: create_flags 0x%x: the device offers IBV_QP_CREATE_BLOCK_SELF_MCAST_LB only",
        flags);
    return refuse(EOPNOTSUPP);
  }
  // The flags of raw packet QPs are others, and the device has none of them.
  if (flags != 0 && attr->qp_type == IBV_QPT_RAW_PACKET) {
    VERBENA_WARN(qp_create_flags,
                 "ibv_create_qp_ex: create_flags 0x%x: the device offers none for raw packet QPs", flags);
    return refuse(EOPNOTSUPP);
  }
  // As mlx4 (drivers/infiniband/hw/mlx4/qp.c, _mlx4_ib_create_qp()).
  if (flags != 0 && attr->qp_type != IBV_QPT_UD) {
    VERBENA_WARN(qp_create_flags,
                 "ibv_create_qp_ex: create_flags 0x%x, type %u: only UD QPs have multicast messages", flags,
                 static_cast<unsigned>(attr->qp_type));
    return refuse(EINVAL);
  }
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd->context != context) {
    VERBENA_WARN(qp_attributes, "ibv_create_qp_ex: comp_mask 0x%x: it needs a PD of this context",
                 attr->comp_mask);
    return refuse(EINVAL);
  }
  ibv_qp_init_attr plain = {.qp_context = attr->qp_context,
                            .send_cq = attr->send_cq,
                            .recv_cq = attr->recv_cq,
                            .srq = attr->srq,
                            .cap = attr->cap,
                            .qp_type = attr->qp_type,
                            .sq_sig_all = attr->sq_sig_all};
  const bool has_send_ops = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (has_send_ops) {
    if (const int error = check_send_ops(attr->qp_type, attr->send_ops_flags); error != 0)
      return refuse(error);
  }
  ibv_qp* qp = create_qp(attr->pd, &plain);
  if (qp == nullptr) return nullptr;
  if (has_send_ops && !extend(*to_qp(qp), plain.cap, attr->send_ops_flags)) {
    destroy_qp(qp);
    return refuse(ENOMEM);
  }
  if (flags != 0) block_own_multicast(to_qp(qp)->emulated);
  attr->cap = plain.cap;
  return qp;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  if ((attr_mask & ~kKnownAttributes) != 0)
    return refuse_mask("ibv_modify_qp", *qp, attr_mask, kKnownAttributes);
  if (const int error = check_handles("ibv_modify_qp", qp); error != 0) return answer(error);
  const int error = verbena::modify_qp(to_qp(qp)->emulated, attr, attr_mask);
  return answer(error);
}

// ibv_query_qp(3): the mask is a hint and more may be returned, so all attributes are.
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr) {
  if ((attr_mask & ~kQueriedAttributes) != 0)
    return refuse_mask("ibv_query_qp", *qp, attr_mask, kQueriedAttributes);
  if (const int error = check_handles("ibv_query_qp", qp); error != 0) return answer(error);
  if (const int error = verbena::query_qp(to_qp(qp)->emulated, attr, init_attr); error != 0)
    return answer(error);
  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->srq = qp->srq;
  init_attr->qp_type = qp->qp_type;
  return 0;
}

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  if (const int error = check_handles("ibv_modify_qp_rate_limit", qp); error != 0) return answer(error);
  return answer(verbena::modify_qp_rate_limit(to_qp(qp)->emulated, attr));
}

int set_ece(ibv_qp* qp, ibv_ece* ece) { return answer(verbena::set_ece(to_qp(qp)->emulated, ece)); }
int query_ece(ibv_qp* qp, ibv_ece* ece) { return answer(verbena::query_ece(to_qp(qp)->emulated, ece)); }

int destroy_qp(ibv_qp* ibv) {
  if (const int error = check_end("ibv_destroy_qp", ibv); error != 0) return answer(error);
  VerbsQp* qp = to_qp(ibv);
  uint32_t async_events = 0;
  const int error = ibv->qp_type == IBV_QPT_XRC_RECV
                        ? verbena::close_qp(qp->emulated, reinterpret_cast<uintptr_t>(qp), &async_events)
                        : verbena::destroy_qp(qp->emulated, &async_events);
  if (error != 0) return answer(error);
  await_acknowledgements(ibv, "ibv_destroy_qp", ObjectName::of_qp(ibv->qp_num),
                         {{kAsyncEvents, ibv->events_completed, async_events}});
  VerbsPd* pd =
      ibv->qp_type == IBV_QPT_XRC_RECV ? nullptr : to_pd(ibv->pd);  // not in it, see create_xrc_recv_qp
  free_wr_arena(qp->arena);
  free_in(pd, qp, Resource::kQp, qp->from_domain);
  let_go(pd);
  return 0;
}

}  // namespace verbena::verbs
