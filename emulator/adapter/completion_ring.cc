// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

#include <algorithm>

namespace verbena {

bool CompletionConsumer::is_claimed(uint64_t position) const {
  if (position - head_ >= ring().capacity()) return false;
  const uint64_t claim = ring().claims[ring().place(position)].load(std::memory_order_acquire);
  return static_cast<int32_t>(ClaimWord::unpack(claim).lap - ring().lap(position)) >= 0;
}

// The claimed entry at `position`, which is not before the head.
CompletionConsumer::Found CompletionConsumer::look(uint64_t position) {
  // The claim is read before the entry: if the claimer is dead by then, the entry is final.
  const ClaimWord claim =
      ClaimWord::unpack(ring().claims[ring().place(position)].load(std::memory_order_acquire));
  const bool holder_lives = claim.worker != kNobody && alive_(alive_context_, claim.worker);
  const CqeState state = CqeState::unpack(ring().entry(position).state.load(std::memory_order_acquire));
  if (state.lap == ring().lap(position)) return state.kind == CqeKind::kTaken ? Found::kTaken : Found::kEntry;
  if (is_left_behind_place(position)) return Found::kTaken;
  if (holder_lives) return Found::kUnfinished;
  take_out(position);
  return Found::kTaken;
}

// An entry that was incomplete when the head passed it may have been published meanwhile, and the next entry
// of the same QP, too. A consumer that has seen the next entry sees here that the earlier one is complete.
bool CompletionConsumer::passed_unfinished_only(uint64_t position) const {
  const auto complete = [&](uint64_t passed) {
    const CqeState state = CqeState::unpack(ring().entry(passed).state.load(std::memory_order_acquire));
    return state.lap == ring().lap(passed) && state.kind != CqeKind::kTaken;
  };
  for (const LeftBehind& passed : left_behind_)
    if (complete(passed.position)) return false;
  for (uint64_t passed = head_; passed < position; ++passed)
    if (complete(passed)) return false;
  return true;
}

bool CompletionConsumer::is_left_behind_place(uint64_t position) const {
  return std::any_of(left_behind_.begin(), left_behind_.end(),
                     [&](const LeftBehind& left) { return (position - left.position) % ring().capacity() == 0; });
}

// Moves the head to `end`, or to an entry that has become complete meanwhile. Entries that are not complete
// are left behind, and their places are claimed for the next lap.
void CompletionConsumer::leave_behind(uint64_t end) {
  for (pass_taken(); head_ < end && look(head_) == Found::kUnfinished; pass_taken()) {
    std::atomic<uint64_t>& claim = ring().claims[ring().place(head_)];
    left_behind_.push_back({head_, ClaimWord::unpack(claim.load(std::memory_order_relaxed)).worker});
    tell_unusual();
    claim.store(ClaimWord{ring().lap(head_) + 1, kNobody}.pack(), std::memory_order_release);
    ++head_;
  }
}

// Takes out an entry that is consumed or whose claimer is dead.
// - At the head: the head passes it.
// - Behind the head: it is marked for the head to pass.
// - Left behind earlier: its place is claimed for a later lap with the worker kNobody, and the head passes
//   that as well.
void CompletionConsumer::take_out(uint64_t position) {
  if (position < head_) {
    std::erase_if(left_behind_, [&](const LeftBehind& left) { return left.position == position; });
    tell_unusual();
  } else {
    ring().entry(position).state.store(ring().word(position, CqeKind::kTaken), std::memory_order_release);
  }
}

void CompletionConsumer::pass_taken() {
  for (;;) {
    if (!left_behind_.empty() && is_left_behind_place(head_) && is_claimed(head_) &&
        ring().places->tail.load(std::memory_order_acquire) > head_) {
      // One lap later: still not finished. The claim is renewed only after the producers have stepped over
      // the place in this lap.
      ring().claims[ring().place(head_)].store(ClaimWord{ring().lap(head_) + 1, kNobody}.pack(),
                                             std::memory_order_release);
      ++head_;
    } else if (ring().entry(head_).state.load(std::memory_order_acquire) == ring().word(head_, CqeKind::kTaken)) {
      ++head_;
    } else {
      return;
    }
  }
}

Cqe* CompletionConsumer::take_slowly(bool* eager) {
  const auto found = [&](uint64_t position) {
    position_ = position;
    Cqe& entry = ring().entry(position);
    *eager = entry.state.load(std::memory_order_acquire) == ring().word(position, CqeKind::kEager);
    return &entry;
  };
  for (;;) {
    pass_taken();
    bool from_the_start = false;
    // Entries left behind come first: they are the oldest. Entries whose claimer died before publishing are
    // dropped.
    for (size_t i = 0; i < left_behind_.size();) {
      const LeftBehind left = left_behind_[i];
      const bool holder_lives = alive_(alive_context_, left.worker);
      const uint64_t state = ring().entry(left.position).state.load(std::memory_order_acquire);
      if (CqeState::unpack(state).lap == ring().lap(left.position)) return found(left.position);
      if (holder_lives)
        ++i;
      else
        take_out(left.position);
    }
    for (uint64_t position = head_; is_claimed(position) && !from_the_start; ++position) {
      // A producer is stopped in the middle of a request, and the others need the space.
      if ((position - head_) * 4 >= ring().capacity() && position != head_ &&
          left_behind_.size() < ring().capacity() / 4)
        leave_behind(position);
      if (look(position) != Found::kEntry) continue;
      if (passed_unfinished_only(position)) return found(position);
      from_the_start = true;
    }
    if (!from_the_start) return nullptr;
  }
}

// ---- resizing ----

void CompletionConsumer::tell_unusual() {
  unusual_.store(!left_behind_.empty() || old_ != nullptr, std::memory_order_relaxed);
}

void CompletionConsumer::begin_again(const CompletionRing& ring) {
  auto old = std::make_unique<CompletionConsumer>();
  old->begin(this->ring(), alive_, alive_context_);
  old->head_ = head_;
  old->begun_ = begun_;
  old->left_behind_ = std::move(left_behind_);
  old->old_ = std::move(old_);
  old->tell_unusual();
  old_ = std::move(old);
  left_behind_.clear();
  head_ = begun_ = known_tail_ = fetched_ = 0;
  tell_unusual();
  ring_.store(&ring, std::memory_order_release);
}

void CompletionConsumer::old_ring_is_settled() {
  CompletionConsumer& old = *old_;
  old.last_ring_ = old.ring();
  old.last_places_.tail.store(old.last_ring_.places->tail.load(std::memory_order_relaxed), std::memory_order_relaxed);
  old.last_places_.head.store(old.head_, std::memory_order_relaxed);
  old.last_ring_.places = &old.last_places_;
  old.ring_.store(&old.last_ring_, std::memory_order_release);
  old.settled_ = true;
}

uint64_t CompletionConsumer::outstanding() const {
  uint64_t count = old_ != nullptr ? old_->outstanding() : 0;
  for (uint64_t position = head_; is_claimed(position); ++position) {
    const CqeState state = CqeState::unpack(ring().entry(position).state.load(std::memory_order_acquire));
    if (state.lap != ring().lap(position) || state.kind != CqeKind::kTaken) ++count;
  }
  return count;
}

Cqe* CompletionConsumer::take_unusually(bool* eager, bool thoroughly) {
  const auto here = [&] {
    return left_behind_.empty() ? take_here(eager, thoroughly) : take_slowly(eager);
  };
  if (old_ == nullptr) return here();
  const auto in_old_ring = [&] {
    Cqe* entry = old_->take(eager, true);
    if (entry != nullptr) position_ = kInOldRing;
    return entry;
  };
  if (Cqe* entry = in_old_ring(); entry != nullptr) return entry;
  if (old_->settled_) {
    old_.reset();
    tell_unusual();
    return here();
  }
  // A producer whose next entry is in the new ring may have published the previous one in the old ring since
  // the last look.
  Cqe* entry = here();
  if (entry == nullptr) return nullptr;
  const bool eager_here = *eager;
  const uint64_t position_here = position_;
  if (Cqe* earlier = in_old_ring(); earlier != nullptr) return earlier;
  position_ = position_here;
  *eager = eager_here;
  return entry;
}

void CompletionConsumer::consume_unusually() {
  if (position_ != kInOldRing) return take_out(position_);
  old_->consume();
  old_->finish();
}

}  // namespace verbena
