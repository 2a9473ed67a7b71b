// SPDX-License-Identifier: BSD-2-Clause
//
// The ring of a completion queue: many producers in many processes, one consumer at a time (the owner, under
// the CQ's lock).
//
// Invariants, each true after any instruction of any process, so that a SIGKILL leaves a usable ring:
//  * Entries are claimed densely: no entry before SharedCq::tail is free in its lap. `tail` itself is a hint
//    and may lag behind.
//  * Only the producer that claimed an entry writes it until it publishes it.
//  * An entry whose claimer died is taken out of the ring by the consumer; its completion was never promised to
//    anybody, since the claimer was the one to promise it.
#pragma once

#include <cstdint>

#include "adapter/layout.h"

namespace verbena {

struct CompletionRing {
  SharedCq* cq = nullptr;
  Cqe* entries = nullptr;
  uint32_t order = 0;

  Cqe& entry(uint64_t position) const { return entries[position & ((uint64_t{1} << order) - 1)]; }
  uint32_t lap(uint64_t position) const { return static_cast<uint32_t>(position >> order); }
};

// ---- producers ----------------------------------------------------------------------------------------------

struct Claim {
  Cqe* entry = nullptr;  // nullptr: the ring is full (CQ overrun)
  uint64_t position = 0;
};

inline Claim claim_completion(const CompletionRing& ring, uint32_t worker) {
  uint64_t position = ring.cq->tail.load(std::memory_order_relaxed);
  // In a sound ring the search ends within two laps of the first entry that is not claimed; the bound is for
  // damaged ones, which count as full.
  for (uint64_t steps = uint64_t{0x10000} + (uint64_t{64} << ring.order); steps != 0; --steps, ++position) {
    Cqe& entry = ring.entry(position);
    const uint32_t lap = ring.lap(position);
    uint64_t seen = entry.state.load(std::memory_order_acquire);
    const uint64_t free_now = CqeState{lap, 0, CqeKind::kFree}.pack();
    if (seen == free_now) {
      if (entry.state.compare_exchange_strong(seen, CqeState{lap, worker, CqeKind::kClaimed}.pack(),
                                              std::memory_order_acq_rel)) {
        ring.cq->tail.store(position + 1, std::memory_order_relaxed);
        return {&entry, position};
      }
    }
    // Not consumed since the last lap: the ring is full. Anything else belongs to this lap or a later one: the
    // hint was old. Then everything up to one lap before that entry is claimed.
    const uint32_t ahead = CqeState::unpack(seen).lap - lap;
    if (ahead == UINT32_MAX) return {};
    if (ahead > 1) position += uint64_t{ahead - 1} << ring.order;
  }
  return {};
}

inline void publish_completion(const CompletionRing& ring, const Claim& claim, CqeKind kind) {
  claim.entry->state.store(CqeState{ring.lap(claim.position), 0, kind}.pack(), std::memory_order_release);
}

// ---- the consumer -------------------------------------------------------------------------------------------

// Tells whether the process that `worker` stands for is still there.
using WorkerAlive = bool (*)(void* context, uint32_t worker);

class CompletionConsumer {
 public:
  CompletionConsumer() = default;
  CompletionConsumer(const CompletionRing& ring, WorkerAlive alive, void* alive_context)
      : ring_(ring), alive_(alive), alive_context_(alive_context) {}

  const CompletionRing& ring() const { return ring_; }
  uint64_t head() const { return head_; }

  // The next complete entry, or nullptr. Entries that a live producer still fills are stepped over for now:
  // their order against other producers' entries is nobody's promise. The entry is the caller's until
  // consume(); nobody else scatters its bytes any more. *landed: its bytes have yet to be scattered.
  Cqe* take(bool* landed) {
    uint64_t state = ring_.entry(head_).state.load(std::memory_order_acquire);
    if (state == CqeState{ring_.lap(head_), 0, CqeKind::kPublished}.pack()) {
      position_ = head_;
      *landed = false;
      return &ring_.entry(head_);
    }
    if (state == CqeState{ring_.lap(head_), 0, CqeKind::kFree}.pack()) return nullptr;
    return take_slowly(landed);
  }

  // Gives the entry that take() returned last back to the producers.
  void consume() {
    Cqe& entry = ring_.entry(position_);
    if (position_ == head_) {
      entry.state.store(CqeState{ring_.lap(head_) + 1, 0, CqeKind::kFree}.pack(), std::memory_order_release);
      advance();
    } else {
      entry.state.store(CqeState{ring_.lap(position_), 0, CqeKind::kTaken}.pack(), std::memory_order_release);
    }
  }

  // Calls visit(entry, landed) for each complete entry not yet consumed, in order; an entry for which it
  // answers true is taken out. Entries that are just being filled or placed by living peers are not visited: the
  // caller has waited for the visitors that matter to it.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (uint64_t position = head_; position - head_ < uint64_t{1} << ring_.order; ++position) {
      Cqe& entry = ring_.entry(position);
      const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
      if (state.lap != ring_.lap(position) || state.kind == CqeKind::kFree) return;
      const bool orphaned = state.kind == CqeKind::kPlacing && !alive_(alive_context_, state.worker);
      if (state.kind != CqeKind::kPublished && state.kind != CqeKind::kLanded && !orphaned) continue;
      if (visit(entry, state.kind != CqeKind::kPublished))
        entry.state.store(CqeState{ring_.lap(position), 0, CqeKind::kTaken}.pack(), std::memory_order_release);
    }
  }

  // Calls place(entry), which scatters its bytes, for each landed entry, taking it as a peer would: peers may want
  // to scatter it at this moment. `worker` is the owner. False: living peers are still scattering some entries.
  template <typename Place>
  bool place_landed(uint32_t worker, Place&& place) {
    bool all = true;
    for (uint64_t position = head_; position - head_ < uint64_t{1} << ring_.order;) {
      Cqe& entry = ring_.entry(position);
      const uint32_t lap = ring_.lap(position);
      uint64_t word = entry.state.load(std::memory_order_acquire);
      const CqeState state = CqeState::unpack(word);
      if (state.lap != lap || state.kind == CqeKind::kFree) break;
      const bool placing = state.kind == CqeKind::kPlacing;
      if (placing && alive_(alive_context_, state.worker)) {
        all = false;
      } else if (placing || state.kind == CqeKind::kLanded) {
        if (!entry.state.compare_exchange_strong(word, CqeState{lap, worker, CqeKind::kPlacing}.pack(),
                                                 std::memory_order_acq_rel))
          continue;
        place(entry);
        entry.state.store(CqeState{lap, 0, CqeKind::kPublished}.pack(), std::memory_order_release);
      }
      ++position;
    }
    return all;
  }

 private:
  Cqe* take_slowly(bool* landed);
  bool passed_unfinished_only(uint64_t first_claimed, uint64_t position, uint32_t held_qp) const;
  void advance() {
    ++head_;
    ring_.cq->head.store(head_, std::memory_order_relaxed);
  }

  CompletionRing ring_;
  WorkerAlive alive_ = nullptr;
  void* alive_context_ = nullptr;
  uint64_t head_ = 0;
  uint64_t position_ = 0;
};

}  // namespace verbena
