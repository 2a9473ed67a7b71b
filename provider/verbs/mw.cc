// SPDX-License-Identifier: BSD-2-Clause
#include "observe/log.h"
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (const int error = check_handles("ibv_alloc_mw", pd); error != 0) return refuse(error);
  auto* mw = allocate<VerbsMw>();
  if (mw == nullptr) return nullptr;
  if (const int error = verbena::alloc_mw(to_pd(pd)->emulated, type, &mw->emulated); error != 0)
    return refuse(mw, error);
  ibv_mw& ibv = mw->base;
  ibv.context = pd->context;
  ibv.pd = pd;
  ibv.rkey = mw_rkey(mw->emulated);
  ibv.handle = mw_handle(mw->emulated);
  ibv.type = type;
  return &ibv;
}

// ibv_bind_mw(3) has checked the type and the PD of the region. It posts the request and returns the new key.
// Refused as on mlx5 (providers/mlx5/qp.c, mlx5_bind_mw): a zero-based window.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if ((bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
    VERBENA_WARN(
        mw_zero_based,
        "ibv_bind_mw: QP 0x%06x, rkey 0x%x, mw_access_flags 0x%x: a window of type 1 is not zero-based",
        qp->qp_num, mw->rkey, bind->bind_info.mw_access_flags);
    return answer(EINVAL);
  }
  ibv_send_wr wr = {};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  ibv_send_wr* bad = nullptr;
  if (const int error = verbena::post_send(to_qp(qp)->emulated, &wr, &bad); error != 0) return answer(error);
  mw->rkey = wr.bind_mw.rkey;
  return 0;
}

int dealloc_mw(ibv_mw* ibv) {
  if (const int error = check_end("ibv_dealloc_mw", ibv); error != 0) return answer(error);
  VerbsMw* mw = to_mw(ibv);
  if (const int error = verbena::dealloc_mw(mw->emulated); error != 0) return answer(error);
  free(mw);
  return 0;
}

}  // namespace verbena::verbs
