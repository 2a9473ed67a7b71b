// SPDX-License-Identifier: BSD-2-Clause
//
// Resizing:
// 1. A new ring is made beside the old one, and becomes the one that producers find. From now on polls
//    consume the old ring first.
// 2. Producers that are still appending to the old ring are waited for, as in teardown.
// 3. Eager data of the old ring is scattered, since its positions mean nothing in the new ring.
#include "engine/completion/cq_rings.h"

#include <errno.h>

#include <bit>
#include <new>

#include "emulator.h"
#include "engine/completion/poll.h"
#include "engine/objects/context.h"
#include "engine/rules/device_attributes.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint64_t ring_bytes(uint32_t order) { return (sizeof(Cqe) + sizeof(uint64_t)) << order; }

// Frees the rings before the present one if they have been consumed. Under Cq::lock.
void release_old_rings(Cq& cq) {
  if (cq.consumer.has_old_ring()) return;
  for (const Cq::RingMemory& old : cq.old_rings) cq.process->segment().release(old.offset, old.bytes);
  cq.old_rings.clear();
}

// Switches the producers and the consumer to a new ring. 0, EINVAL or ENOMEM. Under resize_mutex.
int move_to_new_ring(Cq& cq, uint32_t cqe, uint32_t order) {
  std::lock_guard lock(cq.lock);
  if (const uint64_t outstanding = cq.consumer.outstanding(); outstanding > cqe) {
    VERBENA_WARN(cq_size, "ibv_resize_cq: %u entries: %llu completions wait to be polled", cqe,
                 static_cast<unsigned long long>(outstanding));
    return EINVAL;
  }
  if (order == cq.ring.current().order) return 0;
  release_old_rings(cq);
  cq.old_rings.reserve(cq.old_rings.size() + 1);
  const Cq::RingMemory present = cq.ring_memory;
  if (int error = make_cq_ring(cq, cq.ring.current().generation + 1, order); error != 0) return error;
  cq.old_rings.push_back(present);
  cq.consumer.begin_again(cq.ring.current());
  return 0;
}

}  // namespace

uint32_t cq_ring_order(uint32_t cqe) { return static_cast<uint32_t>(std::bit_width(cqe - 1)); }

int make_cq_ring(Cq& cq, uint32_t generation, uint32_t order) {
  OwnSegment& segment = cq.process->segment();
  const uint64_t offset = segment.allocate(ring_bytes(order));
  if (offset == 0) return ENOMEM;
  const uint64_t claim_offset = offset + (sizeof(Cqe) << order);
  SharedCqRing& places = cq.shared->rings[generation & 1];
  const CompletionRing ring{
      .cq = cq.shared,
      .places = &places,
      .entries = segment.view().at<Cqe>(offset, uint64_t{1} << order),
      .claims = segment.view().at<std::atomic<uint64_t>>(claim_offset, uint64_t{1} << order),
      .order = order,
      .flags = cq.flags,
      .generation = generation,
      .segment = segment.view()};
  std::atomic_ref(places.order).store(order, std::memory_order_relaxed);
  std::atomic_ref(places.offset).store(offset, std::memory_order_relaxed);
  std::atomic_ref(places.claim_offset).store(claim_offset, std::memory_order_relaxed);
  places.tail.store(0, std::memory_order_relaxed);
  places.head.store(0, std::memory_order_relaxed);
  try {
    cq.ring.follow(ring);
  } catch (const std::bad_alloc&) {
    segment.release(offset, ring_bytes(order));
    return ENOMEM;
  }
  cq.ring_memory = {offset, ring_bytes(order)};
  cq.shared->ring_generation.store(generation, std::memory_order_seq_cst);
  return 0;
}

void release_cq_rings(Cq& cq) {
  for (const Cq::RingMemory& old : cq.old_rings) cq.process->segment().release(old.offset, old.bytes);
  cq.process->segment().release(cq.ring_memory.offset, cq.ring_memory.bytes);
}

int resize_cq(Cq* cq, int cqe) {
  if (int error = usable(*cq->context); error != 0) return error;
  if (const uint64_t most = cq->context->device->limits.max_cqe;
      cqe < 1 || static_cast<uint32_t>(cqe) > most) {
    VERBENA_WARN(cq_size, "ibv_resize_cq: %d entries: must be 1 to %llu", cqe,
                 static_cast<unsigned long long>(most));
    return EINVAL;
  }
  std::lock_guard one_at_a_time(cq->resize_mutex);
  SharedCq& shared = *cq->shared;
  int error = ENOMEM;
  try {
    error = move_to_new_ring(*cq, static_cast<uint32_t>(cqe), cq_ring_order(static_cast<uint32_t>(cqe)));
  } catch (const std::bad_alloc&) {
  }
  const uint32_t generation = cq->ring.current().generation;
  if (error != 0 || shared.scattered_generation.load(std::memory_order_relaxed) == generation) return error;
  cq->process->wait_for_hazards({"ibv_resize_cq", "CQ", cq->index});
  cq->process->wait_for_own_producers(*cq);
  scatter_eager(*cq);
  std::lock_guard lock(cq->lock);
  if (cq->consumer.has_old_ring()) cq->consumer.old_ring_is_settled();
  shared.scattered_generation.store(generation, std::memory_order_release);
  return 0;
}

}  // namespace verbena
