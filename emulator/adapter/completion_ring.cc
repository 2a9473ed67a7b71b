// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

namespace verbena {

Cqe* CompletionConsumer::take_slowly(bool* landed) {
  pass_taken();
  for (uint64_t position = head_; position - head_ < ring_.capacity(); ++position) {
    const uint32_t lap = ring_.lap(position);
    Cqe& entry = ring_.entry(position);
    // The claim is read before the entry: if its holder is dead by then, what the entry says is final.
    const ClaimWord claim = ClaimWord::unpack(ring_.claims[ring_.place(position)].load(std::memory_order_acquire));
    if (static_cast<int32_t>(claim.lap - lap) < 0) return nullptr;
    const bool holder_lives = alive_(alive_context_, claim.worker);
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
    if (state.lap == lap && state.kind != CqeKind::kTaken) {
      position_ = position;
      *landed = state.kind == CqeKind::kLanded;
      return &entry;
    }
    if (state.lap != lap && !holder_lives) {
      entry.state.store(ring_.word(position, CqeKind::kTaken), std::memory_order_release);
      pass_taken();
    }
  }
  return nullptr;
}

void CompletionConsumer::pass_taken() {
  while (ring_.entry(head_).state.load(std::memory_order_acquire) == ring_.word(head_, CqeKind::kTaken)) ++head_;
}

}  // namespace verbena
