// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

#include <algorithm>

namespace verbena {

// An entry that was still being filled when we went past it may have been published meanwhile, and its QP's
// next entry, too. Whoever has seen that next one sees here that the earlier one is complete.
bool CompletionConsumer::passed_unfinished_only(uint64_t first_claimed, uint64_t position,
                                                uint32_t held_qp) const {
  for (uint64_t passed = first_claimed; passed < position; ++passed) {
    const Cqe& entry = ring_.entry(passed);
    const CqeKind kind = CqeState::unpack(entry.state.load(std::memory_order_acquire)).kind;
    if ((kind == CqeKind::kPublished || kind == CqeKind::kLanded) && entry.qp_index != held_qp) return false;
  }
  return true;
}

Cqe* CompletionConsumer::take_slowly(bool* landed) {
  // A peer is scattering an entry of this QP: the QP's later entries must not overtake it.
  constexpr uint32_t kNone = UINT32_MAX;
  uint32_t held_qp = kNone;
  uint64_t first_claimed = UINT64_MAX;  // position of the first entry passed that somebody still fills
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
        if (!passed_unfinished_only(first_claimed, position, held_qp)) {
          position = head_;
          held_qp = kNone;
          first_claimed = UINT64_MAX;
          continue;
        }
        position_ = position;
        *landed = false;
        return &entry;
      case CqeKind::kLanded:
        if (entry.qp_index == held_qp) break;
        if (!passed_unfinished_only(first_claimed, position, held_qp)) {
          position = head_;
          held_qp = kNone;
          first_claimed = UINT64_MAX;
          continue;
        }
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
        first_claimed = std::min(first_claimed, position);
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
