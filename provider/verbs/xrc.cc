// SPDX-License-Identifier: BSD-2-Clause
//
// XRC domains and the queue pairs that receive in them (ibv_open_xrcd(3), ibv_open_qp(3)).
#include "observe/log.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

// The fields that libibverbs fills in for other providers (libibverbs/cmd_qp.c, set_qp; cmd.c,
// ibv_cmd_open_qp).
ibv_qp* fill_in(VerbsQp* qp, ibv_context* context, void* qp_context) {
  ibv_qp& ibv = qp->base.qp;
  ibv.context = context;
  ibv.qp_context = qp_context;
  ibv.handle = qp_handle(qp->emulated);
  ibv.qp_num = qp_number(qp->emulated);
  ibv.state = qp_state(qp->emulated);
  ibv.qp_type = IBV_QPT_XRC_RECV;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  return &ibv;
}

}  // namespace

// libibverbs/cmd.c, ibv_cmd_open_xrcd: both the descriptor and the flags are needed.
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  constexpr uint32_t kBoth = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED || (attr->comp_mask & kBoth) != kBoth) {
    VERBENA_WARN(unknown_bits, "ibv_open_xrcd: comp_mask 0x%x: it is 0x%x", attr->comp_mask, kBoth);
    return refuse(attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED ? EOPNOTSUPP : EINVAL);
  }
  auto* xrcd = allocate<VerbsXrcd>();
  if (xrcd == nullptr) return nullptr;
  const int error =
      verbena::open_xrcd(to_context(context)->emulated, attr->fd, attr->oflags, &xrcd->emulated);
  if (error != 0) return refuse(xrcd, error);
  xrcd->base.context = context;
  return &xrcd->base;
}

int close_xrcd(ibv_xrcd* ibv) {
  VerbsXrcd* xrcd = to_xrcd(ibv);
  if (const int error = verbena::close_xrcd(xrcd->emulated); error != 0) return answer(error);
  free(xrcd);
  return 0;
}

// It has no queues, CQs or PD: other attributes are ignored (kernel, uverbs_cmd.c, create_qp).
ibv_qp* create_xrc_recv_qp(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr->xrcd->context != context) {
    VERBENA_WARN(qp_attributes,
                 "ibv_create_qp_ex: comp_mask 0x%x: an XRC_RECV QP needs an XRC domain of this context",
                 attr->comp_mask);
    return refuse(EINVAL);
  }
  if ((attr->comp_mask & ~uint32_t{IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD}) != 0) {
    VERBENA_WARN(qp_attributes,
                 "ibv_create_qp_ex: comp_mask 0x%x: of an XRC_RECV QP there is the domain to say",
                 attr->comp_mask);
    return refuse(EOPNOTSUPP);
  }
  auto* qp = allocate<VerbsQp>();
  if (qp == nullptr) return nullptr;
  const int error = verbena::create_xrc_recv_qp(to_xrcd(attr->xrcd)->emulated,
                                                reinterpret_cast<uintptr_t>(qp), &qp->emulated);
  if (error != 0) return refuse(qp, error);
  attr->cap = {};
  // The program may read its own attributes back, as librdmacm does (cma.c, rdma_create_qp_ex): cmd_qp.c,
  // set_qp.
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0) qp->base.qp.pd = attr->pd;
  return fill_in(qp, context, attr->qp_context);
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) {
    VERBENA_WARN(unknown_bits, "ibv_open_qp: comp_mask 0x%x: there are the bits below 0x%x", attr->comp_mask,
                 static_cast<unsigned>(IBV_QP_OPEN_ATTR_RESERVED));
    return refuse(EOPNOTSUPP);
  }
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->xrcd->context != context ||
      attr->qp_type != IBV_QPT_XRC_RECV) {
    VERBENA_WARN(
        xrc_qp,
        "ibv_open_qp: comp_mask 0x%x, type %u: it needs the number of an XRC_RECV QP, and a domain of this "
        "context",
        attr->comp_mask, static_cast<unsigned>(attr->qp_type));
    return refuse(EINVAL);
  }
  auto* qp = allocate<VerbsQp>();
  if (qp == nullptr) return nullptr;
  const int error = verbena::open_qp(to_context(context)->emulated, to_xrcd(attr->xrcd)->emulated,
                                     attr->qp_num, reinterpret_cast<uintptr_t>(qp), &qp->emulated);
  if (error != 0) return refuse(qp, error);
  void* qp_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr->qp_context : nullptr;
  return fill_in(qp, context, qp_context);
}

}  // namespace verbena::verbs
