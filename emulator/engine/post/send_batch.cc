// SPDX-License-Identifier: BSD-2-Clause
//
// Work requests that are posted together or not at all (ibv_wr_post(3): "If a failure is detected during
// operation [...] the entire posting will be aborted").
#include <errno.h>

#include <mutex>

#include "emulator.h"
#include "engine/completion/streaming.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/post/post_send.h"
#include "engine/post/queued_send.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/requester/send_limits.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/qp_state_table.h"
#include "engine/rules/send_rules.h"
#include "observe/log.h"

namespace verbena {
namespace {

// 0, or the errno with which post_send() would refuse one of them. The caller holds send_lock.
int check_batch(Qp& qp, const ibv_send_wr* wr) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR) {
    VERBENA_WARN(qp_not_rts, "ibv_wr_complete: QP 0x%06x is in %s: requests are taken from RTS on",
                 qp.shared->qpn, name_of_state(state));
    return EINVAL;
  }
  const SendLimits limits = send_limits(qp);
  uint64_t count = 0;
  for (; wr != nullptr; wr = wr->next, ++count) {
    const char* why = nullptr;
    if (const int error = check_send_wr(limits, qp.type, *wr, &why); error != 0) {
      VERBENA_WARN(send_request,
                   "ibv_wr_complete: QP 0x%06x, wr_id 0x%llx: opcode %u, %d SGEs, flags 0x%x: %s",
                   qp.shared->qpn, static_cast<unsigned long long>(wr->wr_id), number_in(wr->opcode),
                   wr->num_sge, wr->send_flags, why);
      return error;
    }
  }
  const uint64_t used = places_in_use(qp);
  if (used + count > qp.sq_size) {
    VERBENA_WARN(
        send_queue_full,
        "ibv_wr_complete: QP 0x%06x: %llu requests, and %llu of %llu places of the send queue are taken",
        qp.shared->qpn, static_cast<unsigned long long>(count), static_cast<unsigned long long>(used),
        static_cast<unsigned long long>(qp.sq_size));
    return ENOMEM;
  }
  return 0;
}

}  // namespace

int post_send_batch(Qp* qp, ibv_send_wr* wr) {
  ibv_send_wr* bad = nullptr;
  if (wr->next == nullptr) return post_send(qp, wr, &bad);
  if (qp->process->dead()) return EIO;
  act_on_pending_flags(*qp);
  received_in_a_row = 0;
  std::lock_guard lock(qp->send_lock);
  if (const int error = check_batch(*qp, wr); error != 0) return error;
  HazardGuard guard;
  return post_list(*qp, wr, &bad, guard);
}

int check_send_operation(ibv_qp_type type, ibv_wr_opcode opcode) {
  const SendOperation* operation = find_send_operation(opcode);
  const bool of_type =
      operation != nullptr && number_in(type) < 32 && (operation->qp_types >> number_in(type) & 1) != 0;
  if (of_type && (SendLimits{}.opcodes >> number_in(opcode) & 1) != 0) return 0;
  VERBENA_WARN(qp_operations, "ibv_create_qp_ex: send_ops_flags: %s is not offered on queue pairs of type %u",
               operation != nullptr ? operation->name : "an unknown operation", number_in(type));
  return EOPNOTSUPP;
}

}  // namespace verbena
