// SPDX-License-Identifier: BSD-2-Clause
//
// XRC_RECV queue pairs and their openings (ibv_create_qp_ex(3), ibv_open_qp(3)). An opening is a handle of
// the program; the queue pair lives as long as one of them.
#include <errno.h>

#include <algorithm>
#include <new>

#include "emulator.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/xrc/xrc_openings.h"
#include "engine/xrc/xrc_shared_qps.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {

int create_xrc_recv_qp(Xrcd* xrcd, uint64_t user_handle, Qp** out) {
  if (int error = usable(*xrcd->context); error != 0) return error;
  Qp* qp = new (std::nothrow) Qp;
  if (qp == nullptr) return ENOMEM;
  qp->context = xrcd->context;
  qp->xrcd = xrcd;
  qp->user_handle = user_handle;
  qp->type = IBV_QPT_XRC_RECV;
  try {
    qp->openings.push_back({qp->context, xrcd, user_handle, 0});
  } catch (const std::bad_alloc&) {
    delete qp;
    return ENOMEM;
  }
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_RECV;
  if (int error = bring_to_life(qp, attr); error != 0) return error;
  *out = qp;
  return 0;
}

int open_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  QpnEntry found;
  if (!process.directory().find_qpn(qpn, &found)) {
    VERBENA_WARN("ibv_open_qp: nobody on this node has QP number 0x%06x", qpn);
    return EINVAL;
  }
  if (found.slot != process.home().slot()) return open_foreign_qp(context, xrcd, qpn, user_handle, out);
  // If only others hold it, it is an orphan; from here on it is not, and the service thread leaves it alone.
  Qp* qp = process.qp(found.qp_index);
  const bool there = qp != nullptr && process.xrc_shared_qps().adopt_orphan(qp) && process.qp(found.qp_index) == qp;
  int error = 0;
  bool orphan = false;
  if (!there || qp->xrcd == nullptr || qp->shared->xrcd != xrcd->number) {
    VERBENA_WARN("ibv_open_qp: QP 0x%06x is no XRC_RECV queue pair of this domain", qpn);
    if (!there || qp->xrcd == nullptr) return EINVAL;
    error = EINVAL;
  }
  {
    std::lock_guard lock(qp->openings_mutex);
    orphan = qp->openings.empty();
    try {
      if (error == 0) qp->openings.push_back({context, xrcd, user_handle, 0});
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    if (error == 0 && orphan) {
      qp->context = context;
      qp->xrcd = xrcd;
    }
  }
  if (error != 0) {
    if (orphan) process.xrc_shared_qps().keep_orphan(qp);
    return error;
  }
  xrcd->users.fetch_add(1, std::memory_order_relaxed);
  *out = qp;
  return 0;
}

int close_qp(Qp* qp, uint64_t user_handle, uint32_t* async_events) {
  *async_events = 0;
  if (qp->process->dead()) return 0;
  if (qp->proxy) {
    *async_events = close_foreign_qp(qp, user_handle);
    return 0;
  }
  Process& process = *qp->process;
  QpOpening closed{};
  bool last = false;
  {
    std::lock_guard lock(qp->openings_mutex);
    const auto opening = std::find_if(qp->openings.begin(), qp->openings.end(),
                                      [&](const QpOpening& o) { return o.user_handle == user_handle; });
    if (opening == qp->openings.end()) return EINVAL;
    // The last one goes with the QP, so that its events are taken back after the last was raised.
    last = qp->openings.size() == 1;
    closed = *opening;
    if (!last) {
      qp->openings.erase(opening);
      qp->context = qp->openings.front().context;
      qp->xrcd = qp->openings.front().xrcd;
    }
  }
  if (last &&
      !end_xrc_qp(process.directory(), process.home().node(), process.home().slot(), qp->shared->qpn, true)) {
    // Others hold it: it stays, without a handle here.
    {
      std::lock_guard lock(qp->openings_mutex);
      closed = qp->openings.front();
      qp->openings.clear();
    }
    last = process.xrc_shared_qps().keep_orphan(qp) != 0;
    if (last) qp->openings.push_back(closed);  // there is room: it was there before
  }
  if (last) {
    take_down_qp(*qp);
    closed = qp->openings.front();
  }
  *async_events = take_back_events(*closed.context, user_handle, closed.async_events);
  closed.xrcd->users.fetch_sub(1, std::memory_order_release);
  if (last) free_qp(qp);
  return 0;
}

}  // namespace verbena
