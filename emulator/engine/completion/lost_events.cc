// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/lost_events.h"

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

void owe_event(Process& process, uint64_t user_handle) {
  std::lock_guard lock(process.serving_mutex());
  const uint32_t limit = process.cq_indices().ever_taken();
  for (uint32_t i = 0; i < limit; ++i) {
    Cq* cq = process.cq(i);
    if (cq == nullptr || cq->user_handle != user_handle) continue;
    cq->shared->lost.fetch_add(1, std::memory_order_acq_rel);
    process.view().header().lost_events.store(1, std::memory_order_release);
    process.self().report(*cq->shared);
  }
}

bool reinject_lost_events(Process& process) {
  SegmentHeader& header = process.view().header();
  if (header.lost_events.exchange(0, std::memory_order_acq_rel) == 0) return true;
  std::lock_guard lock(process.serving_mutex());
  bool all = true;
  const uint32_t limit = process.cq_indices().ever_taken();
  for (uint32_t i = 0; i < limit; ++i) {
    Cq* cq = process.cq(i);
    if (cq == nullptr || cq->channel == nullptr) continue;
    while (cq->shared->lost.load(std::memory_order_acquire) != 0) {
      if (cq->channel->fifo.write(&cq->user_handle, sizeof cq->user_handle) != 0) {
        all = false;
        break;
      }
      cq->shared->lost.fetch_sub(1, std::memory_order_acq_rel);
    }
  }
  if (!all) header.lost_events.store(1, std::memory_order_release);
  return all;
}

}  // namespace verbena
