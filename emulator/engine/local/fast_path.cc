// SPDX-License-Identifier: BSD-2-Clause
#include "engine/local/fast_path.h"

#include "adapter/memory_table.h"
#include "engine/local/long_send.h"
#include "engine/local/small_rdma.h"
#include "engine/local/small_request.h"
#include "engine/local/small_send.h"
#include "engine/requester/send_limits.h"
#include "engine/responder/tag_match.h"
#include "engine/rules/pacing.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"
#include "observe/fast_path_observer.h"
#include "observe/observer.h"
#include "observe/probes.h"

namespace verbena {

namespace {

inline bool carry_out(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  return send_small(qp, wr, guard) || carry_out_small_rdma(qp, wr, guard) || send_long(qp, wr, guard);
}

[[gnu::cold]] bool take_fast_path_watched(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  FastPathObserver* const seen = fast_path_observer.load(std::memory_order_acquire);
  if (seen == nullptr || !carry_out(qp, wr, guard)) return false;
  const auto length = static_cast<uint32_t>(message_length(wr));
  const uint64_t packets = packets_of(length, qp.requester.mtu);
  seen->on_small_request({qp.shared->qpn, qp.shared->dest_qpn, wr.wr_id, length,
                          psn_of(qp.requester.psn - static_cast<uint32_t>(packets)),
                          static_cast<uint8_t>(number_in(wr.opcode))});
  return true;
}

}  // namespace

bool take_fast_path(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  // An observer sees each request and response: they take the slow path, unless it is content with less.
  if (observer() != nullptr) [[unlikely]]
    return take_fast_path_watched(qp, wr, guard);
  if (!carry_out(qp, wr, guard)) return false;
  VERBENA_PROBE_POST_SEND(qp.shared->qpn, wr.wr_id, wr.opcode, wr.num_sge);
  return true;
}

bool changes_word(const ibv_send_wr* wr) {
  return wr != nullptr && (number_in(wr->opcode) == IBV_WR_ATOMIC_FETCH_AND_ADD ||
                           number_in(wr->opcode) == IBV_WR_ATOMIC_CMP_AND_SWP);
}

void allow_fast_path(Qp& qp) {
  const PeerPath& path = qp.requester.path;
  qp.fast.responder_state = path.responder_state;
  const bool ordinary = fast_path_enabled.load(std::memory_order_relaxed) && path.responder_state != 0 &&
                        qp.type == IBV_QPT_RC && qp.pacing.rate_kbps == 0;
  qp.fast.is_shared = path.shared_receives.shared != nullptr && !matches_tags(path);
  const bool is_eager =
      ordinary && (path.receives.ready != nullptr || qp.fast.is_shared) && qp.requester.may_be_eager;
  qp.fast.small_size = is_eager ? kBounceSize : 0;
  qp.fast.rdma = ordinary && send_limits(qp).max_message >= kSmallRdma;
  // This process's own memory is never mapped, and has no ring.
  qp.fast.long_sends =
      qp.fast.rdma && (path.receives.ready != nullptr || qp.fast.is_shared) && !path.adapter->view().is_own();
  qp.fast.may_bounce = is_eager;
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
