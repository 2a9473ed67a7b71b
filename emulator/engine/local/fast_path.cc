// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/fast_path.h"

#include "adapter/memory_table.h"
#include "engine/local/small_rdma.h"
#include "engine/local/small_request.h"
#include "engine/local/small_send.h"
#include "engine/requester/send_limits.h"
#include "engine/rules/pacing.h"
#include "observe/observer.h"

namespace verbena {

bool take_fast_path(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  // An observer sees each request and response: they take the slow path.
  return observer() == nullptr && (send_small(qp, wr, guard) || carry_out_small_rdma(qp, wr, guard));
}

void allow_fast_path(Qp& qp) {
  const PeerPath& path = qp.requester.path;
  qp.fast.responder_state = path.responder_state;
  const bool ordinary = fast_path_enabled.load(std::memory_order_relaxed) && path.responder_state != 0 &&
                        qp.type == IBV_QPT_RC && qp.pacing.rate_kbps == 0;
  const bool is_eager = ordinary && path.receives.ready != nullptr && qp.requester.may_be_eager;
  qp.fast.small_size = is_eager ? kBounceSize : 0;
  qp.fast.rdma = ordinary && send_limits(qp).max_message >= kSmallRdma;
}

bool find_local_slowly(Qp& qp, KnownRegion& known, MemoryUse use, const ibv_sge& sge, uint64_t* address) {
  const SegmentView& view = qp.process->view();
  const Translation place = translate(view, sge.lkey, false, qp.pd->handle, use, sge.addr, sge.length);
  *address = place.address;
  if (place.check != KeyCheck::kOk || place.on_demand) return false;
  known.remember(view, sge.lkey, qp.pd->handle, use);
  return true;
}

}  // namespace verbena
