// SPDX-License-Identifier: BSD-2-Clause
//
// What the fast paths of requests (small_send.h, long_send.h, small_rdma.h) have in common. The caller
// holds send_lock.
#pragma once

#include <atomic>

#include "adapter/known_region.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/requester/advance.h"
#include "engine/responder/peer_path.h"
#include "engine/responder/responder.h"
#include "fabric/hazard_guard.h"

namespace verbena {

// Moves `guard` to the peer. As a rule post_send() has begun it there.
inline void guard_peer(Qp& qp, HazardGuard& guard) {
  const uint32_t there = qp.requester.path.adapter->slot();
  if (guard.is_to(there)) [[likely]]
    return;
  guard.begin(qp.hazards, there);
  qp.expected_target.store(there, std::memory_order_relaxed);
}

// Has nothing on the path changed since check_path()? Under a hazard guard.
inline bool is_path_unchanged(const Qp& qp) {
  const PeerPath& path = qp.requester.path;
  return ports_up(qp.requester) && path.adapter->alive(qp.process->directory()) &&
         path.qp->responder_state.load(std::memory_order_acquire) == path.responder_state;
}

// As find_local(), for a region that is not the cached one.
bool find_local_slowly(Qp& qp, KnownRegion& known, MemoryUse use, const ibv_sge& sge, uint64_t* address);

// Finds the bytes of an SGE that is not inline, and checks its lkey. `known`: the region that was used last.
// False: they may not be used, or pages may be absent. Under a hazard guard: the region stays registered.
inline bool find_local(Qp& qp, KnownRegion& known, MemoryUse use, const ibv_sge& sge, uint64_t* address) {
  const uint32_t epoch = qp.process->view().header().mr_epoch.load(std::memory_order_acquire);
  return known.covers(epoch, sge.lkey, sge.addr, sge.length, address) ||
         find_local_slowly(qp, known, use, sge, address);
}

inline bool find_gathered(Qp& qp, const ibv_sge& sge, uint64_t* address) {
  return find_local(qp, qp.fast.gathered, MemoryUse::local_gather, sge, address);
}

inline bool find_read_into(Qp& qp, const ibv_sge& sge, uint64_t* address) {
  return find_local(qp, qp.fast.read_into, MemoryUse::local_scatter, sge, address);
}

// Takes a WQE of the peer's SRQ. False: there is none, or an unfinished message has one already. If the fast
// path cannot go on, it keeps the WQE (keep_taken_wqe()), and the slow path finds it. A process that dies
// here leaves a slot whose taker has died: its owner finds it (shared_receive_ring.h).
inline bool take_shared_wqe(Qp& qp, uint32_t* slot, ReadyWord* ready) {
  PeerPath& path = qp.requester.path;
  bool limit_reached;
  if (path.current_wqe != 0 ||
      !path.shared_receives.take(qp.process->membership().worker(), slot, &limit_reached, 0, ready))
    return false;
  if (limit_reached) [[unlikely]]
    path.memory->report(*path.shared_receives.shared);
  return true;
}

// Counts a request that is posted and finished at once. Returns its number.
inline uint64_t pass_through_queue(Qp& qp) {
  const uint64_t number = qp.sq_posted++;
  qp.sq_next = qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  return number;
}

}  // namespace verbena
