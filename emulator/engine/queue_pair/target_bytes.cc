// SPDX-License-Identifier: BSD-2-Clause
//
// The bytes at the other end that an RDMA WRITE would change, for the checker.
#include <sys/uio.h>

#include <mutex>

#include "adapter/memory_table.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/transport.h"
#include "engine/responder/peer_path.h"
#include "fabric/hazard_guard.h"
#include "insight.h"

namespace verbena {

bool read_target(Qp* qp, uint64_t address, uint32_t rkey, void* to, uint32_t length) {
  if (qp->proxy || qp->process->dead()) return false;
  std::lock_guard send(qp->send_lock);
  RequesterContext& requester = qp->requester;
  PeerPath& path = requester.path;
  if (!path.adapter || requester.xrc_targets || !qp->transport->is_synchronous()) return false;
  if (qp->state.load(std::memory_order_relaxed) != IBV_QPS_RTS || qp->sq_next != qp->sq_posted) return false;
  const HazardGuard guard(qp->process->hazards(), path.adapter->slot());
  if (check_path(requester) != VendorError::none) return false;
  const Translation place = translate(path.memory->view(), rkey, true, path.remote_pd,
                                      MemoryUse::remote_write, address, length, path.qp->qpn);
  if (place.check != KeyCheck::kOk) return false;
  const iovec here{to, length};
  const iovec there{reinterpret_cast<void*>(place.address), length};
  return path.memory->read(qp->process->directory(), &here, 1, &there, 1) == 0;
}

}  // namespace verbena
