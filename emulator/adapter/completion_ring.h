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
#include <memory>
#include <vector>

#include "adapter/device_clock.h"
#include "adapter/prefetch.h"
#include "adapter/segment.h"

namespace verbena {

struct CompletionRing {
  SharedCq* cq = nullptr;
  SharedCqRing* places = nullptr;
  Cqe* entries = nullptr;
  std::atomic<uint64_t>* claims = nullptr;
  uint32_t order = 0;
  uint32_t flags = 0;                           // CqFlags
  uint32_t generation = 0;                      // SharedCq::ring_generation that this is the ring of
  std::atomic<uint64_t>* known_head = nullptr;  // the producer's own copy of places->head; may lag behind
  SegmentView segment;

  // The ring in use of `cq`, and *known_head set accordingly; entries == nullptr where its offsets do not lie within
  // the segment.
  static CompletionRing of(const SegmentView& segment, SharedCq& cq, std::atomic<uint64_t>* known_head) {
    for (int tries = 0; tries < 16; ++tries) {
      const uint32_t generation = cq.ring_generation.load(std::memory_order_acquire);
      SharedCqRing& places = cq.rings[generation & 1];
      const uint32_t order = std::atomic_ref(places.order).load(std::memory_order_relaxed);
      const uint64_t offset = std::atomic_ref(places.offset).load(std::memory_order_relaxed);
      const uint64_t claim_offset = std::atomic_ref(places.claim_offset).load(std::memory_order_relaxed);
      const uint32_t flags = std::atomic_ref(cq.flags).load(std::memory_order_relaxed);
      const uint64_t head = places.head.load(std::memory_order_acquire);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (cq.ring_generation.load(std::memory_order_relaxed) != generation) continue;
      if (order > 24) return {};
      auto* entries = segment.at<Cqe>(offset, uint64_t{1} << order);
      auto* claims = segment.at<std::atomic<uint64_t>>(claim_offset, uint64_t{1} << order);
      if (entries == nullptr || claims == nullptr) return {};
      known_head->store(head, std::memory_order_release);
      return {&cq, &places, entries, claims, order, flags, generation, known_head, segment};
    }
    return {};
  }

  bool is_current() const { return cq->ring_generation.load(std::memory_order_acquire) == generation; }
  bool ignores_overrun() const { return (flags & kCqIgnoresOverrun) != 0; }
  // So many bytes of a message find room in an entry.
  uint32_t inline_size() const { return (flags & kCqStamped) != 0 ? kStampedInlineSize : kCqeInlineSize; }
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
    if (behind()) [[likely]]
      return true;
    known_head->store(places->head.load(std::memory_order_acquire), std::memory_order_release);
    return behind();
  }
};

// ---- producers ----

struct Claim {
  Cqe* entry = nullptr;  // nullptr: the ring is full (CQ overrun)
  uint64_t position = 0;
  uint32_t lap = 0;
  bool stamped = false;
};

// Of this ring, resized or not, when the first entry is not where `tail` says. A full ring: no entry.
[[gnu::noinline]] inline Claim claim_by_search(const CompletionRing& ring, uint32_t worker) {
  uint64_t position = ring.places->tail.load(std::memory_order_relaxed);
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
      ring.places->tail.store(position + 1, std::memory_order_relaxed);
      return {&ring.entry(position), position, ring.lap(position), (ring.flags & kCqStamped) != 0};
    }
  }
  return {};
}

// Of this ring, resized or not. Almost always the hint is right, and nobody else claims at this moment.
[[gnu::always_inline]] inline Claim claim_in(const CompletionRing& ring, uint32_t worker) {
  const uint64_t position = ring.places->tail.load(std::memory_order_relaxed);
  const uint32_t lap = ring.lap(position);
  std::atomic<uint64_t>& claim = ring.claims[ring.place(position)];
  uint64_t seen = claim.load(std::memory_order_acquire);
  if (ClaimWord::unpack(seen).lap + 1 != lap || !ring.has_room(position) ||
      !claim.compare_exchange_strong(seen, ClaimWord{lap, worker}.pack(), std::memory_order_acq_rel))
      [[unlikely]]
    return claim_by_search(ring, worker);
  ring.places->tail.store(position + 1, std::memory_order_relaxed);
  return {&ring.entry(position), position, lap, (ring.flags & kCqStamped) != 0};
}

// The CQ has been resized: `ring` becomes the one in use. False: that one is not sound.
[[gnu::noinline]] inline bool go_over(CompletionRing& ring) {
  const CompletionRing now = CompletionRing::of(ring.segment, *ring.cq, ring.known_head);
  if (now.entries == nullptr) return false;
  ring = now;
  return true;
}

// Of a peer's ring, under a hazard guard: resizing waits until it is over. `ring` follows the CQ when it has
// been resized.
[[gnu::always_inline]] inline Claim claim_completion(CompletionRing& ring, uint32_t worker) {
  if (!ring.is_current() && !go_over(ring)) [[unlikely]]
    return {};
  return claim_in(ring, worker);
}

// The owner's own view of its CQ: it is resized while threads of the process append to it. They hold a lock of the queue
// pair that they append for (send_lock or recv_lock), by which resizing knows that they are done.
class OwnCompletionRing {
 public:
  const CompletionRing& current() const { return *current_.load(std::memory_order_acquire); }
  bool ignores_overrun() const { return current().ignores_overrun(); }

  // Under the CQ's lock: the ring that `cq` has come to. Earlier ones stay for those who still look at them.
  void follow(const SegmentView& segment, SharedCq& cq) {
    rings_.push_back(std::make_unique<Entry>());
    rings_.back()->ring = CompletionRing::of(segment, cq, &rings_.back()->known_head);
    current_.store(&rings_.back()->ring, std::memory_order_release);
  }

 private:
  struct Entry {
    CompletionRing ring;
    std::atomic<uint64_t> known_head{0};
  };
  std::vector<std::unique_ptr<Entry>> rings_;
  std::atomic<const CompletionRing*> current_{nullptr};
};

inline Claim claim_completion(const OwnCompletionRing& own, uint32_t worker) {
  return claim_in(own.current(), worker);
}

// `Ring`: the one that the claim was made with.
template <typename Ring>
void publish_completion(const Ring&, const Claim& claim, CqeKind kind) {
  if (claim.stamped) [[unlikely]]
    claim.entry->set_stamp(device_clock_ticks());
  claim.entry->state.store(CqeState{claim.lap, kind}.pack(), std::memory_order_release);
}

// ---- the consumer ----

// Tells whether the process that `worker` stands for is still there.
using WorkerAlive = bool (*)(void* context, uint32_t worker);

class CompletionConsumer {
 public:
  // Before anything else; an empty ring, which stays where it is.
  void begin(const CompletionRing& ring, WorkerAlive alive, void* alive_context) {
    ring_.store(&ring, std::memory_order_release);
    alive_ = alive;
    alive_context_ = alive_context;
  }

  // The CQ is being resized, `ring` is its new one, still empty. What lies in the old one is consumed first, and what
  // producers still append to it until they are known to be done.
  void begin_again(const CompletionRing& ring);
  void old_ring_is_settled();  // they are done; the old ring's places in SharedCq are left alone from now on
  bool has_old_ring() const { return old_ != nullptr; }
  uint64_t outstanding() const;  // entries that have been claimed and not been consumed

  const CompletionRing& ring() const { return *ring_.load(std::memory_order_acquire); }
  uint64_t head() const { return head_; }

  // Nothing complete at the head? A look without the CQ's lock, for those who poll in vain.
  bool seems_empty() const {
    const CompletionRing& now = ring();
    const uint64_t head = now.places->head.load(std::memory_order_relaxed);
    return CqeState::unpack(now.entry(head).state.load(std::memory_order_relaxed)).lap != now.lap(head) &&
           !unusual_.load(std::memory_order_relaxed);
  }

  // The next complete entry, or nullptr. `thoroughly`: if there is none at the head, look whether a producer
  // has claimed it and not filled it yet; the entries behind it are then taken out of turn: order against
  // other producers' entries is nobody's promise. *landed: its bytes have yet to be scattered, which the
  // caller does before consume().
  Cqe* take(bool* eager, bool thoroughly) {
    if (unusual_.load(std::memory_order_relaxed)) [[unlikely]]
      return take_unusually(eager, thoroughly);
    return take_here(eager, thoroughly);
  }

  // So far ahead of the entry in hand others are being fetched; 0 while it is not known that more are there.
  static constexpr uint32_t kReadAhead = 8;
  uint32_t read_ahead() const { return head_ + kReadAhead < fetched_ ? kReadAhead : 0; }

  // The entry that take() returned last is done with.
  void consume() {
    if (position_ == head_)
      ++head_;
    else
      consume_unusually();
  }

  // Ends a series of take() and consume(): gives the entries to the producers.
  void finish() {
    if (head_ == begun_) return;
    ring().places->head.store(head_, std::memory_order_release);
    begun_ = head_;
  }

  // Calls visit(entry, landed) for each complete entry not yet consumed, in order; an entry for which it
  // answers true is taken out. Entries that are just being filled are not visited.
  template <typename Callback>
  void for_each(Callback&& callback) {
    if (old_ != nullptr) old_->for_each(callback);
    const auto look = [&](uint64_t position) {
      Cqe& entry = ring().entry(position);
      const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
      if (state.lap == ring().lap(position) && state.kind != CqeKind::kTaken &&
          callback(entry, state.kind == CqeKind::kEager))
        take_out(position);
    };
    for (const LeftBehind& left : std::vector<LeftBehind>(left_behind_)) look(left.position);
    for (uint64_t position = head_; is_claimed(position); ++position) look(position);
    pass_taken();
    finish();
  }

  // For for_each's visitors: the bytes of an eager entry have been scattered.
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
        known_tail_ = ring().places->tail.load(std::memory_order_relaxed);
      } else {
        prefetch(&ring().places->tail);
        known_tail_ = head_ + 2;
      }
      fetched_ = head_ + 1;
    }
    const uint64_t end = head_ + kReadAhead < known_tail_ ? head_ + kReadAhead + 1 : known_tail_;
    for (; fetched_ < end; ++fetched_) {
      prefetch(&ring().entry(fetched_));
      if (byte_len > kCqeFirstLine) prefetch(&ring().entry(fetched_).payload[kCqeInlineSize - 1]);
    }
  }

  Cqe* take_here(bool* eager, bool thoroughly) {
    const CompletionRing& now = ring();
    Cqe& entry = now.entry(head_);
    const uint64_t kind = entry.state.load(std::memory_order_acquire) - now.word(head_, CqeKind::kNothing);
    *eager = kind == static_cast<uint64_t>(CqeKind::kEager);
    if (!*eager && kind != static_cast<uint64_t>(CqeKind::kPublished)) [[unlikely]] {
      if (kind >> 32 != 0 && !thoroughly) return nullptr;
      return take_slowly(eager);
    }
    position_ = head_;
    if (head_ != begun_) fetch_ahead(entry.byte_len);
    return &entry;
  }

  enum class Found : uint8_t { kNothing, kUnfinished, kTaken, kEntry };
  Cqe* take_unusually(bool* eager, bool thoroughly);
  Cqe* take_slowly(bool* eager);
  void consume_unusually();
  void tell_unusual();
  Found look(uint64_t position);
  bool is_claimed(uint64_t position) const;
  bool passed_unfinished_only(uint64_t position) const;
  bool is_left_behind_place(uint64_t position) const;
  void leave_behind(uint64_t end);
  void take_out(uint64_t position);
  void pass_taken();

  // position_ while the entry in hand is one of the old ring's.
  static constexpr uint64_t kInOldRing = UINT64_MAX;

  std::atomic<const CompletionRing*> ring_{nullptr};  // the one pointer that is looked at without the CQ's lock
  WorkerAlive alive_ = nullptr;
  void* alive_context_ = nullptr;
  uint64_t head_ = 0;
  uint64_t begun_ = 0;  // what the producers know of the head
  uint64_t position_ = 0;
  uint64_t known_tail_ = 0;              // entries before it are claimed, as far as is known
  uint64_t fetched_ = 0;                 // entries before it have been fetched ahead
  std::vector<LeftBehind> left_behind_;  // before head_, ascending; almost always none
  std::atomic<bool> unusual_{false};     // there is something left behind, or an old ring
  std::unique_ptr<CompletionConsumer> old_;
  // Of an old ring that is settled: SharedCq's places for it may be in use again.
  bool settled_ = false;
  SharedCqRing last_places_{};
  CompletionRing last_ring_;
};

}  // namespace verbena
