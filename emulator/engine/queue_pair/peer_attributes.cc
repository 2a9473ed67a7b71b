// SPDX-License-Identifier: BSD-2-Clause
//
// What the other end of a connection was given, for the checker.
#include <mutex>

#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "fabric/hazard_guard.h"
#include "insight.h"

namespace verbena {

uint32_t count_rnr_naks(const Qp* qp) { return qp->shared->rnr_naks.load(std::memory_order_relaxed); }

bool find_peer_attributes(Qp* qp, PeerAttributes* out) {
  if (qp->proxy || qp->process->dead()) return false;
  std::lock_guard send(qp->send_lock);
  const PeerPath& path = qp->requester.path;
  if (!path.adapter || path.qp == nullptr) return false;
  const HazardGuard guard(qp->process->hazards(), path.adapter->slot());
  if (!path.adapter->alive(qp->process->directory())) return false;
  const SharedQp& there = *path.qp;
  const uint8_t state = ResponderState::unpack(there.responder_state.load(std::memory_order_acquire)).state;
  if (there.in_use.load(std::memory_order_acquire) == 0 || there.incarnation != path.incarnation ||
      (state != IBV_QPS_RTR && state != IBV_QPS_RTS))
    return false;
  *out = {.dest_qp_num = there.dest_qpn,
          .path_mtu = static_cast<ibv_mtu>(there.path_mtu),
          .max_dest_rd_atomic = there.max_dest_rd_atomic};
  return true;
}

}  // namespace verbena
