// SPDX-License-Identifier: BSD-2-Clause
//
// XRC_RECV queue pairs and their handles (ibv_create_qp_ex(3), ibv_open_qp(3)). The queue pair lives as long
// as one of its handles.
#include <errno.h>

#include <algorithm>
#include <new>

#include "emulator.h"
#include "engine/events/async_events.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/xrc/xrc_shared_qp.h"
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
    qp->handles.push_back({qp->context, xrcd, user_handle, 0});
  } catch (const std::bad_alloc&) {
    delete qp;
    return ENOMEM;
  }
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_RECV;
  if (int error = set_up_qp(qp, attr); error != 0) return error;
  *out = qp;
  return 0;
}

int open_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  QpnEntry found;
  if (!process.directory().find_qpn(qpn, &found)) {
    VERBENA_WARN(xrc_qp, "ibv_open_qp: nobody on this node has QP number 0x%06x", qpn);
    return EINVAL;
  }
  if (found.slot != process.membership().slot()) return open_proxy_qp(context, xrcd, qpn, user_handle, out);
  // If only other processes hold it, it is an orphaned QP. From here on it is not, and the service thread
  // does not touch it.
  Qp* qp = process.qp(found.qp_index);
  const bool there =
      qp != nullptr && process.xrc_shared_qps().adopt_orphaned(qp) && process.qp(found.qp_index) == qp;
  int error = 0;
  bool orphaned = false;
  if (!there || qp->xrcd == nullptr || qp->shared->xrcd != xrcd->number) {
    VERBENA_WARN(xrc_qp, "ibv_open_qp: QP 0x%06x is no XRC_RECV queue pair of this domain", qpn);
    if (!there || qp->xrcd == nullptr) return EINVAL;
    error = EINVAL;
  }
  {
    std::lock_guard lock(qp->handles_mutex);
    orphaned = qp->handles.empty();
    try {
      if (error == 0) qp->handles.push_back({context, xrcd, user_handle, 0});
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    if (error == 0 && orphaned) {
      qp->context = context;
      qp->xrcd = xrcd;
    }
  }
  if (error != 0) {
    if (orphaned) process.xrc_shared_qps().keep_orphaned(qp);
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
    *async_events = close_proxy_qp(qp, user_handle);
    return 0;
  }
  Process& process = *qp->process;
  QpHandle closed{};
  bool last = false;
  {
    std::lock_guard lock(qp->handles_mutex);
    const auto handle = std::find_if(qp->handles.begin(), qp->handles.end(),
                                     [&](const QpHandle& o) { return o.user_handle == user_handle; });
    if (handle == qp->handles.end()) return EINVAL;
    // The last handle ends with the QP, so that its events are taken back after the last one was raised.
    last = qp->handles.size() == 1;
    closed = *handle;
    if (!last) {
      qp->handles.erase(handle);
      qp->context = qp->handles.front().context;
      qp->xrcd = qp->handles.front().xrcd;
    }
  }
  if (last && !end_xrc_qp(process.directory(), process.membership().slot(), qp->shared->qpn, true)) {
    // Other processes hold it: it stays, without a handle here.
    {
      std::lock_guard lock(qp->handles_mutex);
      closed = qp->handles.front();
      qp->handles.clear();
    }
    last = process.xrc_shared_qps().keep_orphaned(qp) != 0;
    if (last) qp->handles.push_back(closed);  // there is room: it was there before
  }
  if (last) {
    take_down_qp(*qp);
    closed = qp->handles.front();
  }
  *async_events = take_back_events(*closed.context, user_handle, closed.async_events);
  closed.xrcd->users.fetch_sub(1, std::memory_order_release);
  if (last) free_qp(qp);
  return 0;
}

}  // namespace verbena
