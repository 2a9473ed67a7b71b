// SPDX-License-Identifier: BSD-2-Clause
//
// Work queues, tables of them, and the raw packet QPs that receive through a table.
#include "observe/log.h"
#include "verbs/acknowledge.h"
#include "verbs/domain.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {
namespace {

int post_recv_to_wq(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return answer(verbena::post_wq_recv(to_wq(wq)->emulated, wr, bad_wr));
}

int check_rss(const ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t kNeeded = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  if ((attr.comp_mask & ~(kNeeded | IBV_QP_INIT_ATTR_CREATE_FLAGS)) != 0) return EOPNOTSUPP;
  if (attr.qp_type != IBV_QPT_RAW_PACKET) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & kNeeded) != kNeeded || attr.pd->context != context || attr.rwq_ind_tbl == nullptr ||
      attr.rwq_ind_tbl->context != context)
    return EINVAL;
  // The kernel (drivers/infiniband/core/uverbs_cmd.c, create_qp()) and mlx5.
  return attr.send_cq != nullptr || attr.srq != nullptr || attr.cap.max_recv_wr != 0 ||
                 attr.cap.max_recv_sge != 0
             ? EINVAL
             : 0;
}

}  // namespace

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  if (attr->pd == nullptr || attr->cq == nullptr || attr->pd->context != context ||
      attr->cq->context != context) {
    VERBENA_WARN(work_queue, "ibv_create_wq: it needs a PD and a CQ of this context");
    return refuse(EINVAL);
  }
  if (const int error = check_handles("ibv_create_wq", attr->pd, attr->cq); error != 0) return refuse(error);
  auto* wq = allocate<VerbsWq>();
  if (wq == nullptr) return nullptr;
  const int error = verbena::create_wq(to_pd(attr->pd)->emulated, attr, to_cq(attr->cq)->emulated,
                                       reinterpret_cast<uintptr_t>(wq), &wq->emulated);
  if (error != 0) return refuse(wq, error);
  hold(to_pd(attr->pd));
  ibv_wq& ibv = wq->base;
  ibv.context = context;
  ibv.pd = attr->pd;
  ibv.cq = attr->cq;
  ibv.wq_num = wq_number(wq->emulated);
  ibv.handle = wq_handle(wq->emulated);
  ibv.state = IBV_WQS_RESET;
  ibv.wq_type = attr->wq_type;
  ibv.post_recv = post_recv_to_wq;
  return &ibv;
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
  if (const int error = check_handles("ibv_modify_wq", wq); error != 0) return answer(error);
  const int error = verbena::modify_wq(to_wq(wq)->emulated, attr);
  if (error == 0) wq->state = wq_state(to_wq(wq)->emulated);
  return answer(error);
}

int destroy_wq(ibv_wq* ibv) {
  if (const int error = check_end("ibv_destroy_wq", ibv); error != 0) return answer(error);
  uint32_t async_events = 0;
  const uint32_t number = ibv->wq_num;
  if (const int error = verbena::destroy_wq(to_wq(ibv)->emulated, &async_events); error != 0)
    return answer(error);
  await_acknowledgements(ibv, "ibv_destroy_wq", ObjectName::of_qp(number),
                         {{kAsyncEvents, ibv->events_completed, async_events}});
  VerbsPd* const pd = to_pd(ibv->pd);
  free(to_wq(ibv));
  let_go(pd);
  return 0;
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  constexpr uint32_t kMostLog = 9;
  if (attr->comp_mask != 0) return refuse(EOPNOTSUPP);
  Wq* queues[1u << kMostLog];
  for (uint32_t i = 0; attr->log_ind_tbl_size <= kMostLog && i < 1u << attr->log_ind_tbl_size; ++i) {
    ibv_wq* const wq = attr->ind_tbl[i];
    if (wq == nullptr || wq->context != context || check_handles("ibv_create_rwq_ind_table", wq) != 0) {
      VERBENA_WARN(work_queue, "ibv_create_rwq_ind_table: entry %u is no work queue of this context", i);
      return refuse(EINVAL);
    }
    queues[i] = to_wq(wq)->emulated;
  }
  auto* table = allocate<VerbsRwqTable>();
  if (table == nullptr) return nullptr;
  const int error = verbena::create_rwq_table(to_context(context)->emulated, queues, attr->log_ind_tbl_size,
                                              &table->emulated);
  if (error != 0) return refuse(table, error);
  table->base.context = context;
  return &table->base;
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  if (const int error = verbena::destroy_rwq_table(to_rwq_table(table)->emulated); error != 0)
    return answer(error);
  free(to_rwq_table(table));
  return 0;
}

ibv_qp* create_rss_qp(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  int error = check_rss(context, *attr);
  if (error == 0) error = check_handles("ibv_create_qp_ex", attr->pd);
  if (error != 0) {
    VERBENA_WARN(
        work_queue,
        "ibv_create_qp_ex: comp_mask 0x%x: a QP with a table of work queues is a raw packet QP with a PD, "
        "the "
        "table and a hash, and without CQs and queues of its own",
        attr->comp_mask);
    return refuse(error);
  }
  auto* qp = allocate<VerbsQp>();
  if (qp == nullptr) return nullptr;
  error = verbena::create_rss_qp(to_pd(attr->pd)->emulated, &attr->rx_hash_conf,
                                 to_rwq_table(attr->rwq_ind_tbl)->emulated, reinterpret_cast<uintptr_t>(qp),
                                 &qp->emulated);
  if (error != 0) return refuse(qp, error);
  hold(to_pd(attr->pd));
  ibv_qp& ibv = qp->base.qp;
  ibv.context = context;
  ibv.qp_context = attr->qp_context;
  ibv.pd = attr->pd;
  ibv.handle = qp_handle(qp->emulated);
  ibv.qp_num = qp_number(qp->emulated);
  ibv.state = IBV_QPS_RESET;
  ibv.qp_type = attr->qp_type;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  return &ibv;
}

}  // namespace verbena::verbs
