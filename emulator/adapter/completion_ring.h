// SPDX-License-Identifier: BSD-2-Clause
//
// The ring of a completion queue: many producers in many processes, one consumer at a time (the owner, under
// the CQ's lock).
//
// Invariants, each true after any instruction of any process, so that a SIGKILL leaves a usable ring:
// - Entries are claimed densely: no entry before SharedCq::tail is free. `tail` itself is a hint and may lag
//   behind.
// - An entry is claimed again only after the head has passed it: a claim of lap n follows one of lap n - 1.
// - Only the producer that has claimed an entry writes it until the entry is published. Afterwards only the
//   owner does.
// - The consumer takes an entry whose claimer has died out of the ring. Its completion was promised to no
//   process: the claimer was the one to promise it.
// - An entry whose claimer is stopped does not block the others. When many entries behind it have been
//   consumed, the consumer leaves it behind: before the head passes it, the consumer claims its place for the
//   next lap with the worker kNobody. It does so lap after lap until the claimer has finished; producers step
//   over the place.
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
  uint32_t generation = 0;                      // SharedCq::ring_generation of this ring
  std::atomic<uint64_t>* known_head = nullptr;  // the producer's own copy of places->head; may lag behind
  SegmentView segment;

  // The ring of `cq` that is in use; sets *known_head to match. `entries` is nullptr where the ring's offsets
  // do not lie within the segment.
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
  // Bytes of a message that fit into an entry.
  uint32_t inline_size() const { return (flags & kCqStamped) != 0 ? kStampedInlineSize : kCqeInlineSize; }
  uint64_t capacity() const { return uint64_t{1} << order; }
  uint64_t place(uint64_t position) const { return position & (capacity() - 1); }
  Cqe& entry(uint64_t position) const { return entries[place(position)]; }
  uint32_t lap(uint64_t position) const { return static_cast<uint32_t>((position >> order) + 1); }
  uint64_t word(uint64_t position, CqeKind kind) const { return CqeState{lap(position), kind}.pack(); }

  // True: the consumer has passed the entry that `position` would reuse.
  bool has_room(uint64_t position) const {
    // Acquire and release: a producer that relies on the head that another producer has read also relies on
    // the consumer having finished with the entry.
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

// Claims in this ring, resized or not, when the first entry is not where `tail` says. Ring full: no entry.
[[gnu::noinline]] inline Claim claim_by_search(const CompletionRing& ring, uint32_t worker) {
  uint64_t position = ring.places->tail.load(std::memory_order_relaxed);
  // In a sound ring the search ends within two laps of the first entry that is not claimed. The bound is for
  // damaged rings, which count as full.
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

// Claims in this ring, resized or not. Almost always the hint is right, and no other producer claims at this
// moment.
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

// The CQ has been resized: `ring` becomes the ring in use. False: the new ring is not sound.
[[gnu::noinline]] inline bool go_over(CompletionRing& ring) {
  const CompletionRing now = CompletionRing::of(ring.segment, *ring.cq, ring.known_head);
  if (now.entries == nullptr) return false;
  ring = now;
  return true;
}

// Claims in a peer's ring, under a hazard guard: resizing waits until the guard is released. When the CQ has
// been resized, `ring` becomes the new ring.
[[gnu::always_inline]] inline Claim claim_completion(CompletionRing& ring, uint32_t worker) {
  if (!ring.is_current() && !go_over(ring)) [[unlikely]]
    return {};
  return claim_in(ring, worker);
}

// The owner's own view of its CQ: it does not believe what the segment says of the ring. The CQ may be
// resized while threads of the process append to it. Such a thread holds a lock of the queue pair that it
// appends for (send_lock or recv_lock); resizing takes that lock to know that the thread is done.
class OwnCompletionRing {
 public:
  const CompletionRing& current() const { return *current_.load(std::memory_order_acquire); }
  bool ignores_overrun() const { return current().ignores_overrun(); }

  // Under the CQ's lock: switches to `ring`, which is new. Earlier rings stay for threads that still look at
  // them.
  void follow(const CompletionRing& ring) {
    rings_.push_back(std::make_unique<Entry>());
    rings_.back()->ring = ring;
    rings_.back()->ring.known_head = &rings_.back()->known_head;
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

// `Ring`: the ring that the claim was made in.
template <typename Ring>
void publish_completion(const Ring&, const Claim& claim, CqeKind kind) {
  if (claim.stamped) [[unlikely]]
    claim.entry->set_stamp(device_clock_ticks());
  claim.entry->state.store(CqeState{claim.lap, kind}.pack(), std::memory_order_release);
}

// ---- the consumer ----

// True: the process that `worker` stands for is alive.
using WorkerAlive = bool (*)(void* context, uint32_t worker);

class CompletionConsumer {
 public:
  // First call, with an empty ring, which must stay where it is.
  void begin(const CompletionRing& ring, WorkerAlive alive, void* alive_context) {
    ring_.store(&ring, std::memory_order_release);
    alive_ = alive;
    alive_context_ = alive_context;
  }

  // The CQ is being resized; `ring` is its new ring, still empty. Entries of the old ring are consumed first,
  // including those that producers still append until they are known to be done.
  void begin_again(const CompletionRing& ring);
  void old_ring_is_settled();  // producers are done: SharedCq's places for the old ring are not touched again
  bool has_old_ring() const { return old_ != nullptr; }
  uint64_t outstanding() const;  // entries that are claimed and not yet consumed

  const CompletionRing& ring() const { return *ring_.load(std::memory_order_acquire); }
  uint64_t head() const { return head_; }

  // True: no complete entry at the head. Needs no lock; for threads that poll an empty CQ.
  bool seems_empty() const {
    const CompletionRing& now = ring();
    const uint64_t head = now.places->head.load(std::memory_order_relaxed);
    return CqeState::unpack(now.entry(head).state.load(std::memory_order_relaxed)).lap != now.lap(head) &&
           !unusual_.load(std::memory_order_relaxed);
  }

  // The next complete entry, or nullptr. *eager: the bytes of the entry must still be scattered; the caller
  // does so before consume(). `thoroughly`: if the head entry is not complete, check whether a producer has
  // claimed it without filling it. Then the entries behind it are taken out of order: no rule orders the
  // entries of different producers.
  Cqe* take(bool* eager, bool thoroughly) {
    if (unusual_.load(std::memory_order_relaxed)) [[unlikely]]
      return take_unusually(eager, thoroughly);
    return take_here(eager, thoroughly);
  }

  // Entries that are prefetched ahead of the current one; 0 while it is not known that more follow.
  static constexpr uint32_t kReadAhead = 8;
  uint32_t read_ahead() const { return head_ + kReadAhead < fetched_ ? kReadAhead : 0; }

  // Ends the use of the entry that take() returned last.
  void consume() {
    if (position_ == head_)
      ++head_;
    else
      consume_unusually();
  }

  // Prefetches the entry behind the one at the head.
  void fetch_behind_head() const { prefetch(&ring().entry(head_ + 1)); }

  // Ends a series of take() and consume(): gives the entries to the producers.
  void finish() {
    if (head_ == begun_) return;
    ring().places->head.store(head_, std::memory_order_release);
    begun_ = head_;
  }

  // Calls callback(entry, eager) for each complete entry that is not yet consumed, in order. If the callback
  // returns true, the entry is taken out. Entries that are being filled are skipped.
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

  // For callbacks of for_each(): the bytes of an eager entry have been scattered.
  static void mark_scattered(Cqe& entry) {
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_relaxed));
    entry.state.store(CqeState{state.lap, CqeKind::kPublished}.pack(), std::memory_order_release);
  }

 private:
  // The worker in the consumer's claims on the places of entries left behind.
  static constexpr uint32_t kNobody = 0xffffff;

  struct LeftBehind {
    uint64_t position;
    uint32_t worker;  // the claimer
  };

  // Called for the second entry of a series and those after it: more are to come. Prefetches all claimed
  // entries at once. It prefetches no line more: that would take the line from a producer just when the
  // producer writes it.
  void fetch_ahead(uint32_t byte_len) {
    if (head_ + 1 >= known_tail_) {
      if (head_ + 1 == known_tail_) {  // prefetched at the previous entry
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

  // position_ while the current entry belongs to the old ring.
  static constexpr uint64_t kInOldRing = UINT64_MAX;

  std::atomic<const CompletionRing*> ring_{nullptr};  // the only pointer that is read without the CQ's lock
  WorkerAlive alive_ = nullptr;
  void* alive_context_ = nullptr;
  uint64_t head_ = 0;
  uint64_t begun_ = 0;  // the head as the producers know it
  uint64_t position_ = 0;
  uint64_t known_tail_ = 0;              // entries before it are claimed, as far as is known
  uint64_t fetched_ = 0;                 // entries before it have been fetched ahead
  std::vector<LeftBehind> left_behind_;  // before head_, ascending; almost always empty
  std::atomic<bool> unusual_{false};     // an entry is left behind, or there is an old ring
  std::unique_ptr<CompletionConsumer> old_;
  // For a settled old ring: SharedCq's places for it may be in use again.
  bool settled_ = false;
  SharedCqRing last_places_{};
  CompletionRing last_ring_;
};

}  // namespace verbena
