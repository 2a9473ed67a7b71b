// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

#include <sched.h>

namespace verbena {

Cqe* CompletionConsumer::take_slowly(bool* landed) {
  for (uint64_t position = head_; position - head_ < uint64_t{1} << ring_.order;) {
    Cqe& entry = ring_.entry(position);
    const uint32_t lap = ring_.lap(position);
    uint64_t word = entry.state.load(std::memory_order_acquire);
    const CqeState state = CqeState::unpack(word);
    if (state.lap != lap) return nullptr;
    switch (state.kind) {
      case CqeKind::kFree:
        return nullptr;
      case CqeKind::kPublished:
        position_ = position;
        *landed = false;
        return &entry;
      case CqeKind::kLanded:
        // A peer that reads or writes this adapter's memory may want to scatter it at this moment.
        if (!entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kTaken}.pack(),
                                                 std::memory_order_acq_rel))
          continue;
        position_ = position;
        *landed = true;
        return &entry;
      case CqeKind::kTaken:
        if (position == head_) {
          entry.state.store(CqeState{lap + 1, 0, CqeKind::kFree}.pack(), std::memory_order_release);
          advance();
        }
        break;
      case CqeKind::kClaimed:
        if (!alive_(alive_context_, state.worker)) {
          entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kTaken}.pack(),
                                              std::memory_order_acq_rel);
          continue;
        }
        break;
      case CqeKind::kPlacing:
        if (!alive_(alive_context_, state.worker)) {
          entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kLanded}.pack(),
                                              std::memory_order_acq_rel);
          continue;
        }
        break;
      default:
        return nullptr;  // hostile bytes: as if the ring ended here
    }
    ++position;
  }
  return nullptr;
}

CqeState CompletionConsumer::settle(Cqe& entry, uint32_t lap) {
  for (;;) {
    uint64_t word = entry.state.load(std::memory_order_acquire);
    const CqeState state = CqeState::unpack(word);
    if (state.lap != lap || state.kind != CqeKind::kPlacing) return state;
    if (!alive_(alive_context_, state.worker))
      entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kLanded}.pack(),
                                          std::memory_order_acq_rel);
    else
      sched_yield();
  }
}

}  // namespace verbena
