// SPDX-License-Identifier: BSD-2-Clause
#include "engine/receive/shared_receive_queue.h"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <new>

#include "adapter/high_water.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/receive/tag_matching.h"
#include "engine/rules/send_rules.h"
#include "observe/observer.h"
#include "observe/probes.h"

namespace verbena {
namespace {

// Are all keys of the list valid now? Then requesters need not check them until some key becomes invalid.
// `epoch`: of the keys.
bool keys_hold(Srq& srq, const ibv_recv_wr& wr, uint32_t epoch) {
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    uint64_t address;
    if (srq.posted.covers(epoch, sge.lkey, sge.addr, sge.length, &address) && address == sge.addr) continue;
    const Translation place = translate(srq.process->view(), sge.lkey, false, srq.pd_handle,
                                        MemoryUse::local_scatter, sge.addr, sge.length);
    // Eager data is copied to the address that the program gave. So the key must translate to that address,
    // and the memory must be mapped.
    if (place.check != KeyCheck::kOk || place.address != sge.addr || place.on_demand) return false;
    srq.posted.remember(srq.process->view(), sge.lkey, srq.pd_handle, MemoryUse::local_scatter);
  }
  return true;
}

// The order word of a position that is about to be reused names the last taker there. If that taker's slot
// has not come back yet, its process is recorded here before the word is overwritten.
void remember_taker(Srq& srq, uint64_t position) {
  const SharedReceiveRing::Place place = srq.ring.place(position);
  if (place.index < place.slots()) return;
  const OrderWord last = OrderWord::unpack(place.word().load(std::memory_order_acquire));
  if (last.slot >= srq.issued || !last.taken) return;
  Srq::Slot& slot = srq.slot(last.slot);
  if (slot.position == position - place.slots() + 1) slot.taker = last.worker;
}

// The caller holds the lock. EAGAIN: no slot is free.
int post_one(Srq& srq, const ibv_recv_wr& wr, const char** why) {
  if (int error = check_recv_wr(srq.ring.max_sge, wr, why); error != 0) return error;
  if (srq.free.empty() || srq.in_use() >= srq.room) return EAGAIN;
  const uint32_t number = srq.free.back();
  srq.free.pop_back();
  ReceiveWqe& wqe = srq.ring.wqe(number);
  wqe.post_count(static_cast<uint32_t>(wr.num_sge));
  wqe.abandoned = 0;
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    wqe.sge[i].post(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
    length += wr.sg_list[i].length;
  }
  wqe.length = static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX));
  // The epoch is read before the keys: if a key becomes invalid in between, the WQE counts as unchecked.
  const uint32_t epoch = srq.process->view().header().mr_epoch.load(std::memory_order_acquire);
  wqe.epoch = keys_hold(srq, wr, epoch) ? epoch & 0xffffff : ReadyWord::kNeverValid;
  const uint64_t position = srq.shared->posted.load(std::memory_order_relaxed);
  remember_taker(srq, position);
  srq.slot(number) = {wr.wr_id, position + 1, 0};
  srq.ring.post(number);
  return 0;
}

void give_back(Srq& srq, uint32_t slot) { give_back_slot(srq, slot); }

}  // namespace

void give_back_slot(Srq& srq, uint32_t slot) {
  if (slot >= srq.issued || srq.slot(slot).position == 0) return;
  srq.slot(slot).position = 0;
  srq.free.push_back(slot);
}

namespace {

int lay_out(Srq& srq, uint32_t max_wr, uint32_t max_sge) {
  Process& process = *srq.process;
  if (process.segment().commit(kSrqTableOffset + sizeof(SharedSrq) * uint64_t{srq.index},
                               sizeof(SharedSrq)) != 0)
    return ENOMEM;
  const uint32_t room = std::max(max_wr, 1u);
  srq.room = room;
  const uint64_t slots = std::bit_ceil(room);
  const uint64_t line = kCacheLine;
  const uint64_t order_bytes = (slots * sizeof(uint64_t) + line - 1) / line * line;
  const uint64_t stride = sizeof(ReceiveWqe) + std::max(max_sge, 1u) * sizeof(WqeSge);
  const uint64_t wqe_bytes = (slots * stride + line - 1) / line * line;
  const uint64_t bytes = order_bytes + wqe_bytes + slots * kBounceSize;
  srq.slots.resize(slots);
  srq.memory.reserve(1);
  srq.free.resize(room);
  srq.issued = room;
  // The lowest slot comes first.
  for (uint32_t i = 0; i < room; ++i) srq.free[i] = room - 1 - i;
  const uint64_t offset = process.segment().allocate(bytes);
  if (offset == 0) return ENOMEM;
  srq.memory.push_back({offset, bytes});
  srq.shared = process.view().srq(srq.index);
  SharedSrq& shared = *srq.shared;
  shared.incarnation.fetch_add(1, std::memory_order_relaxed);
  shared.order_offset = offset;
  shared.wqe_offset = offset + order_bytes;
  shared.bounce_offset = shared.wqe_offset + wqe_bytes;
  shared.order = static_cast<uint32_t>(std::countr_zero(slots));
  shared.stride = static_cast<uint32_t>(stride);
  shared.max_sge = std::max(max_sge, 1u);
  shared.pd = srq.pd_handle;
  shared.cq = shared.srqn = shared.xrcd = 0;
  shared.growths.store(0, std::memory_order_relaxed);
  shared.growth_offset = 0;
  shared.head.store(0, std::memory_order_relaxed);
  shared.posted.store(0, std::memory_order_relaxed);
  shared.limit.store(0, std::memory_order_relaxed);
  shared.limit_reached.store(0, std::memory_order_relaxed);
  shared.requesters_wait.store(0, std::memory_order_relaxed);
  shared.scatter_wanted.store(0, std::memory_order_relaxed);
  shared.tag_offset = shared.tag_address = 0;
  shared.tag_count = 0;
  shared.tag_phase.store(0, std::memory_order_relaxed);
  for (std::atomic<uint32_t>& waiter : shared.waiters) waiter.store(0, std::memory_order_relaxed);
  srq.ring = SharedReceiveRing::of(process.view(), shared);
  return srq.ring.order_words != nullptr ? 0 : ENOMEM;
}

void release_memory(Srq& srq) {
  for (const Srq::Memory& memory : srq.memory) srq.process->segment().release(memory.offset, memory.bytes);
}

}  // namespace

bool take_out_of_hand(Srq& srq, uint32_t slot) {
  std::lock_guard lock(srq.qps_mutex);
  for (uint32_t index : srq.qps) {
    Qp* qp = srq.process->qp(index);
    if (qp == nullptr) continue;
    uint32_t current_wqe = slot + 1;
    if (!qp->shared->srq_slot.compare_exchange_strong(current_wqe, 0, std::memory_order_acq_rel) &&
        current_wqe == (kFlushing | (slot + 1)))
      return false;
  }
  return true;
}

int make_shared_queue(Process& process, uint32_t pd, uint32_t max_wr, uint32_t max_sge, Srq** out) {
  auto* srq = new (std::nothrow) Srq;
  if (srq == nullptr) return ENOMEM;
  if (!process.srq_indices().take(&srq->index)) {
    delete srq;
    return ENOMEM;
  }
  srq->process = &process;
  srq->pd_handle = pd;
  int error = ENOMEM;
  try {
    error = lay_out(*srq, max_wr, max_sge);
  } catch (const std::bad_alloc&) {
  }
  if (error != 0) {
    release_memory(*srq);
    process.srq_indices().give(srq->index);
    delete srq;
    return error;
  }
  raise_high_water(process.view().header().srq_high_water, srq->index);
  srq->shared->in_use.store(1, std::memory_order_release);
  process.set_srq(srq->index, srq);
  *out = srq;
  return 0;
}

void unmake_shared_queue(Srq* srq) {
  Process& process = *srq->process;
  srq->shared->in_use.store(0, std::memory_order_release);
  process.forget_srq(srq->index);
  release_memory(*srq);
  process.srq_indices().give(srq->index);
  delete srq;
}

namespace {

[[gnu::cold]] void tell_of_receive(Observer& observer, const Srq& srq, const ibv_recv_wr& wr) {
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  observer.on_post({.qpn = srq.shared->srqn,
                    .wr_id = wr.wr_id,
                    .length = static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX)),
                    .is_receive = true});
}

}  // namespace

int post_to_shared_queue(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr, const char** why) {
  int error = 0;
  bool reclaimed = false;
  srq.lock.lock();
  while (wr != nullptr) {
    error = post_one(srq, *wr, why);
    if (error == EAGAIN && !reclaimed) {
      reclaimed = true;
      srq.lock.unlock();
      reclaim_slots(srq);
      srq.lock.lock();
      continue;
    }
    if (error != 0) break;
    VERBENA_PROBE_POST_RECV(srq.shared->srqn, wr->wr_id, wr->num_sge);
    if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
      tell_of_receive(*seen, srq, *wr);
    wr = wr->next;
  }
  SharedReceiveRing::finish_posts();
  srq.lock.unlock();
  if (error == 0) return 0;
  if (error == EAGAIN) {
    error = ENOMEM;
    *why = "receive queue full";
  }
  *bad_wr = wr;
  return error;
}

bool take_own(Srq& srq, uint32_t* slot) { return srq.ring.take(srq.process->membership().worker(), slot); }

uint64_t wr_id_of(const Srq& srq, uint32_t slot) {
  if (is_tag(slot)) [[unlikely]]
    return wr_id_of_tag(const_cast<Srq&>(srq), tag_index(slot));
  return slot < srq.ring.slots() ? const_cast<Srq&>(srq).slot(slot).wr_id : 0;
}

void free_slot(Srq& srq, uint32_t slot) {
  if (is_tag(slot)) [[unlikely]]
    return free_tag(srq, tag_index(slot));
  srq.lock.lock();
  give_back(srq, slot);
  srq.lock.unlock();
}

void forget_posted(Srq& srq) {
  for (uint32_t slot; take_own(srq, &slot);) free_slot(srq, slot);
}

Srq* shared_queue_of(const Cq& cq, const Cqe& entry, Qp** out) {
  const uint32_t index =
      std::atomic_ref(const_cast<uint32_t&>(entry.qp_index)).load(std::memory_order_relaxed);
  if ((entry.flags & kCqeXrc) != 0) {
    Srq* srq = index < kMaxSrqsPerProcess ? cq.process->srq(index) : nullptr;
    return srq != nullptr &&
                   srq->shared->incarnation.load(std::memory_order_relaxed) == entry.qp_incarnation &&
                   srq->cq == &cq
               ? srq
               : nullptr;
  }
  Qp* qp = index < kMaxQpsPerProcess ? cq.process->qp(index) : nullptr;
  if (qp == nullptr || qp->shared->incarnation != entry.qp_incarnation) return nullptr;
  if (out != nullptr) *out = qp;
  return qp->srq;
}

void reclaim_slots(Srq& srq) {
  struct Candidate {
    uint32_t slot;
    uint64_t position;
  };
  std::vector<Candidate> candidates;
  try {
    candidates.reserve(srq.ring.slots());
  } catch (const std::bad_alloc&) {
    return;
  }
  srq.lock.lock();
  const uint64_t end = srq.shared->posted.load(std::memory_order_relaxed);
  uint32_t last_seen_alive = 0;  // neighbouring slots often have the same taker
  const NodeDirectory& directory = srq.process->directory();
  for (uint32_t i = 0; i < srq.issued && candidates.size() < candidates.capacity(); ++i) {
    const Srq::Slot& slot = srq.slot(i);
    if (slot.position == 0) continue;
    uint32_t taker = slot.taker;
    const uint64_t position = slot.position - 1;
    // Was the order word not written again? The last position of an older order ring is never reached.
    const SharedReceiveRing::Place place = srq.ring.place(position);
    if (position + place.slots() >= end || srq.ring.place(position + place.slots()).words != place.words) {
      const OrderWord word = OrderWord::unpack(place.word().load(std::memory_order_acquire));
      if (!word.taken || word.slot != i) continue;
      taker = word.worker;
    }
    // The taker is done with the slot, and its completion is lost (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
    const bool abandoned = std::atomic_ref(srq.ring.wqe(i).abandoned).load(std::memory_order_acquire) != 0;
    if (!abandoned && taker != 0 && taker == last_seen_alive) continue;
    if (!abandoned && directory.worker_alive(taker))
      last_seen_alive = taker;
    else
      candidates.push_back({i, slot.position});
  }
  srq.lock.unlock();
  if (candidates.empty()) return;
  // A QP whose requester died in the middle of a message still has the slot as its current WQE. The slot
  // belongs to the thread that takes it from there: this one, or one that flushes the QP.
  std::erase_if(candidates,
                [&](const Candidate& candidate) { return !take_out_of_hand(srq, candidate.slot); });
  // A dead taker completes nothing any more: a completion that is not in a CQ now, and was not polled, never
  // comes.
  srq.process->for_each_cq([&](Cq& cq) {
    std::lock_guard lock(cq.lock);
    cq.consumer.for_each([&](Cqe& entry, bool) {
      if ((entry.flags & kCqeFromShared) != 0 && shared_queue_of(cq, entry) == &srq)
        std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.slot == entry.index; });
      return false;
    });
  });
  srq.lock.lock();
  for (const Candidate& candidate : candidates)
    if (srq.slot(candidate.slot).position == candidate.position) give_back(srq, candidate.slot);
  srq.lock.unlock();
}

}  // namespace verbena
