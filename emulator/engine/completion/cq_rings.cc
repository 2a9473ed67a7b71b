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
  for (const Cq::OldMemory& old : cq.old_rings) cq.process->segment().release(old.offset, old.bytes);
  cq.old_rings.clear();
}

// Switches the producers and the consumer to a new ring. 0, EINVAL or ENOMEM. Under resize_mutex.
int move_to_new_ring(Cq& cq, uint32_t cqe, uint32_t order) {
  SharedCq& shared = *cq.shared;
  std::lock_guard lock(cq.lock);
  if (const uint64_t outstanding = cq.consumer.outstanding(); outstanding > cqe) {
    VERBENA_WARN("ibv_resize_cq: %u entries: %llu completions wait to be polled", cqe,
                 static_cast<unsigned long long>(outstanding));
    return EINVAL;
  }
  if (order == cq.ring.current().order) return 0;
  release_old_rings(cq);
  const uint32_t generation = shared.ring_generation.load(std::memory_order_relaxed);
  const SharedCqRing& present = shared.rings[generation & 1];
  SharedCqRing& next = shared.rings[(generation + 1) & 1];
  cq.old_rings.push_back({present.offset, ring_bytes(present.order)});
  if (int error = make_cq_ring(*cq.process, next, order); error != 0) {
    cq.old_rings.pop_back();
    return error;
  }
  shared.ring_generation.store(generation + 1, std::memory_order_seq_cst);
  cq.ring.follow(cq.process->view(), shared);
  cq.consumer.begin_again(cq.ring.current());
  return 0;
}

}  // namespace

uint32_t cq_ring_order(uint32_t cqe) { return static_cast<uint32_t>(std::bit_width(cqe - 1)); }

int make_cq_ring(Process& process, SharedCqRing& ring, uint32_t order) {
  const uint64_t offset = process.segment().allocate(ring_bytes(order));
  if (offset == 0) return ENOMEM;
  std::atomic_ref(ring.order).store(order, std::memory_order_relaxed);
  std::atomic_ref(ring.offset).store(offset, std::memory_order_relaxed);
  std::atomic_ref(ring.claim_offset).store(offset + (sizeof(Cqe) << order), std::memory_order_relaxed);
  ring.tail.store(0, std::memory_order_relaxed);
  ring.head.store(0, std::memory_order_relaxed);
  return 0;
}

void release_cq_rings(Cq& cq) {
  for (const Cq::OldMemory& old : cq.old_rings) cq.process->segment().release(old.offset, old.bytes);
  const SharedCqRing& present = cq.shared->rings[cq.shared->ring_generation.load() & 1];
  cq.process->segment().release(present.offset, ring_bytes(present.order));
}

int resize_cq(Cq* cq, int cqe) {
  if (int error = usable(*cq->context); error != 0) return error;
  if (const uint64_t most = cq->context->device->limits.max_cqe; cqe < 1 || static_cast<uint32_t>(cqe) > most) {
    VERBENA_WARN("ibv_resize_cq: %d entries: must be 1 to %llu", cqe, static_cast<unsigned long long>(most));
    return EINVAL;
  }
  std::lock_guard one_at_a_time(cq->resize_mutex);
  SharedCq& shared = *cq->shared;
  int error = ENOMEM;
  try {
    error = move_to_new_ring(*cq, static_cast<uint32_t>(cqe), cq_ring_order(static_cast<uint32_t>(cqe)));
  } catch (const std::bad_alloc&) {
  }
  const uint32_t generation = shared.ring_generation.load(std::memory_order_relaxed);
  if (error != 0 || shared.scattered_generation.load(std::memory_order_relaxed) == generation) return error;
  cq->process->wait_for_hazards();
  cq->process->wait_for_own_producers(*cq);
  scatter_eager(*cq);
  std::lock_guard lock(cq->lock);
  if (cq->consumer.has_old_ring()) cq->consumer.old_ring_is_settled();
  shared.scattered_generation.store(generation, std::memory_order_release);
  return 0;
}

}  // namespace verbena
