// SPDX-License-Identifier: BSD-2-Clause
//
// Enhanced connection establishment: options beyond the specification that both ends of a connection agree on
// (ibv_set_ece(3), ibv_query_ece(3)). The device offers what it does by default, as mlx5 does
// (providers/mlx5/verbs.c, mlx5_set_ece() and mlx5_query_ece()). A program removes options, or librdmacm does
// if the other end is of another vendor (librdmacm/cma.c, init_ece()).
//
// Option 1, eager data: a message of up to 256 bytes that the queue pair sends stays beside the receive WQE,
// one of up to kLongestBounced bytes may stay in the bounce ring (adapter/bounce_ring.h). It is placed in the
// program's buffer when its completion is polled. Without the option it is placed in the
// buffer at once, for a system call of the sender. That is for receivers that read the buffer before they
// poll.
#include <errno.h>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/qp_state_table.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint32_t kMayWaitInTheSlot = 1;

// 24 bits, as connection managers carry it (vol. 1 rel. 1.4, 12.6.5).
uint32_t vendor_of(const Qp& qp) {
  return static_cast<uint32_t>(qp.context->device->limits.vendor_id) & 0xffffff;
}

}  // namespace

int set_ece(Qp* qp, ibv_ece* ece) {
  if (int error = usable(*qp->context); error != 0) return error;
  if (ece->comp_mask != 0 || ece->vendor_id != vendor_of(*qp)) {
    VERBENA_WARN(ece, "ibv_set_ece: QP 0x%06x: vendor 0x%06x, comp_mask 0x%x: the device's vendor is 0x%06x",
                 qp->shared->qpn, ece->vendor_id, ece->comp_mask, vendor_of(*qp));
    return EINVAL;
  }
  std::lock_guard modify(qp->modify_mutex);
  const ibv_qp_state state = qp->state.load(std::memory_order_acquire);
  if (state != IBV_QPS_RESET && state != IBV_QPS_INIT) {
    VERBENA_WARN(ece, "ibv_set_ece: QP 0x%06x is in %s: options are agreed on before RTR", qp->shared->qpn,
                 name_of_state(state));
    return EINVAL;
  }
  ece->options &= kMayWaitInTheSlot;
  qp->requester.may_be_eager = (ece->options & kMayWaitInTheSlot) != 0;
  return 0;
}

int query_ece(Qp* qp, ibv_ece* ece) {
  if (int error = usable(*qp->context); error != 0) return error;
  std::lock_guard modify(qp->modify_mutex);
  *ece = {.vendor_id = vendor_of(*qp),
          .options = qp->requester.may_be_eager ? kMayWaitInTheSlot : 0,
          .comp_mask = 0};
  return 0;
}

}  // namespace verbena
