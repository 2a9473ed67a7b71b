// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_queue.h"

#include <errno.h>

#include "engine/datagram/datagram.h"
#include "engine/objects/context.h"
#include "engine/objects/requester_context.h"
#include "engine/qp_state/error_flow.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/rules/psn.h"
#include "observe/log.h"

namespace verbena {

int make_datagram_parts(Qp& qp) {
  qp.requester.mtu = mtu_bytes(qp.context->device->active_mtu);
  if (qp.type == IBV_QPT_UD) qp.datagrams = make_datagrams(qp);
  if (qp.srq != nullptr || qp.cap.max_recv_wr == 0) return 0;
  return make_shared_queue(*qp.process, qp.pd->handle, qp.cap.max_recv_wr, qp.cap.max_recv_sge, &qp.srq);
}

void unmake_datagram_parts(Qp& qp) {
  if (qp.srq == nullptr || is_of_program(*qp.srq)) return;
  unmake_shared_queue(qp.srq);
  qp.srq = nullptr;
}

int post_datagram_receives(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  const ibv_qp_state state = qp.state.load(std::memory_order_acquire);
  if (state == IBV_QPS_RESET) {
    VERBENA_WARN(qp_in_reset, "ibv_post_recv: QP 0x%06x is in RESET: receives are taken from INIT on",
                 qp.shared->qpn);
    *bad_wr = wr;
    return EINVAL;
  }
  const char* why = nullptr;
  const int error = post_to_shared_queue(*qp.srq, wr, bad_wr, &why);
  if (error != 0)
    VERBENA_WARN(receive_request, "ibv_post_recv: QP 0x%06x, wr_id 0x%llx, %d SGEs: %s", qp.shared->qpn,
                 static_cast<unsigned long long>((*bad_wr)->wr_id), (*bad_wr)->num_sge, why);
  qp.shared->rq_posted.store(qp.srq->shared->posted.load(std::memory_order_relaxed),
                             std::memory_order_relaxed);
  if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) {
    qp.flush_receives.store(true, std::memory_order_release);
    if (!flush_receive_queue(qp, kHazardPatience)) qp.process->self().report(*qp.shared);
  }
  return error;
}

}  // namespace verbena
