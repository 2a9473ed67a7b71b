// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

namespace verbena {

Cqe* CompletionConsumer::take_slowly(bool* landed) {
  // A peer is scattering an entry of this QP: the QP's later entries must not overtake it.
  constexpr uint32_t kNone = UINT32_MAX;
  uint32_t held_qp = kNone;
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
        if (entry.qp_index == held_qp) break;
        position_ = position;
        *landed = false;
        return &entry;
      case CqeKind::kLanded:
        if (entry.qp_index == held_qp) break;
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
        if (held_qp != kNone && held_qp != entry.qp_index) return nullptr;
        held_qp = entry.qp_index;
        break;
      default:
        return nullptr;  // hostile bytes: as if the ring ended here
    }
    ++position;
  }
  return nullptr;
}

}  // namespace verbena
