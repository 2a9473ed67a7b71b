// SPDX-License-Identifier: BSD-2-Clause
//
// The ring of a completion queue: many producers in many processes, one consumer at a time (the owner, under
// the CQ's lock).
//
// Invariants, each true after any instruction of any process, so that a SIGKILL leaves a usable ring:
//  * Entries are claimed densely: none before SharedCq::tail is free. `tail` itself is a hint and may lag
//  behind.
//  * An entry is claimed again only after the head has passed it: a claim of lap n follows one of lap n - 1.
//  * Only the producer that claimed an entry writes it until it publishes it; afterwards only the owner does.
//  * An entry whose claimer died is taken out of the ring by the consumer; its completion was never promised
//  to
//    anybody, since the claimer was the one to promise it.
//  * An entry whose claimer is stopped does not keep the others from going round: when many entries behind it
//  have
//    been consumed, the consumer leaves it behind. It claims its place for the next lap itself, in nobody's
//    name, before the head passes it, and so lap after lap until the claimer has finished: producers step
//    over it.
#pragma once

#include <cstdint>
#include <vector>

#include "adapter/prefetch.h"
#include "adapter/segment.h"

namespace verbena {

struct CompletionRing {
  SharedCq* cq = nullptr;
  Cqe* entries = nullptr;
  std::atomic<uint64_t>* claims = nullptr;
  uint32_t order = 0;
  std::atomic<uint64_t>* known_head = nullptr;  // the producer's own copy of cq->head; may lag behind

  // The ring of `cq`; entries == nullptr where its offsets do not lie within the segment.
  static CompletionRing of(const SegmentView& segment, SharedCq& cq, std::atomic<uint64_t>* known_head) {
    const uint32_t order = std::atomic_ref(cq.ring_order).load(std::memory_order_relaxed);
    if (order > 24) return {};
    auto* entries = segment.at<Cqe>(cq.ring_offset, uint64_t{1} << order);
    auto* claims = segment.at<std::atomic<uint64_t>>(cq.claim_offset, uint64_t{1} << order);
    if (entries == nullptr || claims == nullptr) return {};
    return {&cq, entries, claims, order, known_head};
  }

  uint64_t capacity() const { return uint64_t{1} << order; }
  uint64_t place(uint64_t position) const { return position & (capacity() - 1); }
  Cqe& entry(uint64_t position) const { return entries[place(position)]; }
  uint32_t lap(uint64_t position) const { return static_cast<uint32_t>((position >> order) + 1); }
  uint64_t word(uint64_t position, CqeKind kind) const { return CqeState{lap(position), kind}.pack(); }

  // Has the consumer passed the entry that `position` would reuse?
  bool has_room(uint64_t position) const {
    // Acquire and release: whoever relies on what another producer has read of the head relies on the
    // consumer's having done with the entry.
    const auto behind = [&] {
      return static_cast<int64_t>(position - known_head->load(std::memory_order_acquire)) <
             static_cast<int64_t>(capacity());
    };
    if (behind()) return true;
    known_head->store(cq->head.load(std::memory_order_acquire), std::memory_order_release);
    return behind();
  }
};

// ---- producers
// ----------------------------------------------------------------------------------------------

struct Claim {
  Cqe* entry = nullptr;  // nullptr: the ring is full (CQ overrun)
  uint64_t position = 0;
};

inline Claim claim_completion(const CompletionRing& ring, uint32_t worker) {
  uint64_t position = ring.cq->tail.load(std::memory_order_relaxed);
  // In a sound ring the search ends within two laps of the first entry that is not claimed; the bound is for
  // damaged ones, which count as full.
  for (uint64_t steps = 0x10000 + 4 * ring.capacity(); steps != 0; --steps) {
    std::atomic<uint64_t>& claim = ring.claims[ring.place(position)];
    uint64_t seen = claim.load(std::memory_order_acquire);
    const auto ahead = static_cast<int32_t>(ClaimWord::unpack(seen).lap - ring.lap(position));
    if (ahead >= 0) {  // taken: the hint was old, perhaps by whole laps
      position += ahead == 0 ? 1 : static_cast<uint64_t>(ahead) << ring.order;
      continue;
    }
    if (ahead != -1 || !ring.has_room(position)) return {};
    if (claim.compare_exchange_strong(seen, ClaimWord{ring.lap(position), worker}.pack(),
                                      std::memory_order_acq_rel)) {
      ring.cq->tail.store(position + 1, std::memory_order_relaxed);
      return {&ring.entry(position), position};
    }
  }
  return {};
}

inline void publish_completion(const CompletionRing& ring, const Claim& claim, CqeKind kind) {
  claim.entry->state.store(ring.word(claim.position, kind), std::memory_order_release);
}

// ---- the consumer
// -------------------------------------------------------------------------------------------

// Tells whether the process that `worker` stands for is still there.
using WorkerAlive = bool (*)(void* context, uint32_t worker);

class CompletionConsumer {
 public:
  // Before anything else; an empty ring.
  void begin(const CompletionRing& ring, WorkerAlive alive, void* alive_context) {
    ring_ = ring;
    alive_ = alive;
    alive_context_ = alive_context;
  }

  const CompletionRing& ring() const { return ring_; }
  uint64_t head() const { return head_; }

  // Nothing complete at the head? A look without the CQ's lock, for those who poll in vain.
  bool seems_empty() const {
    const uint64_t head = ring_.cq->head.load(std::memory_order_relaxed);
    return CqeState::unpack(ring_.entry(head).state.load(std::memory_order_relaxed)).lap != ring_.lap(head) &&
           !any_left_behind_.load(std::memory_order_relaxed);
  }

  // The next complete entry, or nullptr. `thoroughly`: if there is none at the head, look whether a producer
  // has claimed it and not filled it yet; the entries behind it are then taken out of turn: order against
  // other producers' entries is nobody's promise. *landed: its bytes have yet to be scattered, which the
  // caller does before consume().
  Cqe* take(bool* landed, bool thoroughly) {
    if (!left_behind_.empty()) return take_slowly(landed);
    Cqe& entry = ring_.entry(head_);
    const uint64_t state = entry.state.load(std::memory_order_acquire);
    *landed = state == ring_.word(head_, CqeKind::kLanded);
    if (!*landed && state != ring_.word(head_, CqeKind::kPublished)) {
      if (CqeState::unpack(state).lap != ring_.lap(head_) && !thoroughly) return nullptr;
      return take_slowly(landed);
    }
    position_ = head_;
    if (head_ != begun_) fetch_ahead(entry.byte_len);
    return &entry;
  }

  // So far ahead of the entry in hand others are being fetched; 0 while it is not known that more are there.
  static constexpr uint32_t kReadAhead = 8;
  uint32_t read_ahead() const { return head_ + kReadAhead < fetched_ ? kReadAhead : 0; }

  // The entry that take() returned last is done with.
  void consume() {
    if (position_ == head_)
      ++head_;
    else
      take_out(position_);
  }

  // Ends a series of take() and consume(): gives the entries to the producers.
  void finish() {
    if (head_ == begun_) return;
    ring_.cq->head.store(head_, std::memory_order_release);
    begun_ = head_;
  }

  // Calls visit(entry, landed) for each complete entry not yet consumed, in order; an entry for which it
  // answers true is taken out. Entries that are just being filled are not visited.
  template <typename Visit>
  void for_each(Visit&& visit) {
    const auto look = [&](uint64_t position) {
      Cqe& entry = ring_.entry(position);
      const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
      if (state.lap == ring_.lap(position) && state.kind != CqeKind::kTaken &&
          visit(entry, state.kind == CqeKind::kLanded))
        take_out(position);
    };
    for (const LeftBehind& left : std::vector<LeftBehind>(left_behind_)) look(left.position);
    for (uint64_t position = head_; is_claimed(position); ++position) look(position);
    pass_taken();
    finish();
  }

  // For for_each's visitors: the bytes of a landed entry have been scattered.
  static void mark_scattered(Cqe& entry) {
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_relaxed));
    entry.state.store(CqeState{state.lap, CqeKind::kPublished}.pack(), std::memory_order_release);
  }

 private:
  // In whose name the consumer claims the places of entries left behind.
  static constexpr uint32_t kNobody = 0xffffff;

  struct LeftBehind {
    uint64_t position;
    uint32_t worker;  // who has claimed it
  };

  // The second entry and those after it in a series: there are more to come. Those that are claimed are
  // fetched all at once; not a line more, which would take it from a producer just when he writes it.
  void fetch_ahead(uint32_t byte_len) {
    if (head_ + 1 >= known_tail_) {
      if (head_ + 1 == known_tail_) {  // asked for at the entry before
        known_tail_ = ring_.cq->tail.load(std::memory_order_relaxed);
      } else {
        prefetch(&ring_.cq->tail);
        known_tail_ = head_ + 2;
      }
      fetched_ = head_ + 1;
    }
    const uint64_t end = head_ + kReadAhead < known_tail_ ? head_ + kReadAhead + 1 : known_tail_;
    for (; fetched_ < end; ++fetched_) {
      prefetch(&ring_.entry(fetched_));
      if (byte_len > kCqeFirstLine) prefetch(&ring_.entry(fetched_).payload[kCqeInlineSize - 1]);
    }
  }

  enum class Found : uint8_t { kNothing, kUnfinished, kTaken, kEntry };
  Cqe* take_slowly(bool* landed);
  Found look(uint64_t position);
  bool is_claimed(uint64_t position) const;
  bool passed_unfinished_only(uint64_t position) const;
  bool is_left_behind_place(uint64_t position) const;
  void leave_behind(uint64_t end);
  void take_out(uint64_t position);
  void pass_taken();

  CompletionRing ring_;
  WorkerAlive alive_ = nullptr;
  void* alive_context_ = nullptr;
  uint64_t head_ = 0;
  uint64_t begun_ = 0;  // what the producers know of the head
  uint64_t position_ = 0;
  uint64_t known_tail_ = 0;              // entries before it are claimed, as far as is known
  uint64_t fetched_ = 0;                 // entries before it have been fetched ahead
  std::vector<LeftBehind> left_behind_;  // before head_, ascending; almost always none
  std::atomic<bool> any_left_behind_{false};
};

}  // namespace verbena
