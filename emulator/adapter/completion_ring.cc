// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/completion_ring.h"

#include <algorithm>

namespace verbena {
namespace {

constexpr uint64_t kNowhere = UINT64_MAX;

}  // namespace

// The entry at `position` must not overtake its QP's earlier ones. One that was still being filled when we
// went past it may have been published meanwhile, and its QP's next entry, too: whoever has seen that next
// one sees here that the earlier one is complete. One that a peer scatters is waited for.
CompletionConsumer::Earlier CompletionConsumer::earlier_of_same_qp(uint64_t position) const {
  const uint32_t qp = ring_.entry(position).qp_index;
  Earlier answer = Earlier::kNone;
  const auto compare = [&](uint64_t passed) {
    const Cqe& entry = ring_.entry(passed);
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
    if (passed >= position || state.lap != ring_.lap(passed) || answer == Earlier::kPlacing) return;
    const bool complete = state.kind == CqeKind::kPublished || state.kind == CqeKind::kLanded;
    if ((!complete && state.kind != CqeKind::kPlacing) || entry.qp_index != qp) return;
    answer = complete ? Earlier::kComplete : Earlier::kPlacing;
  };
  for (const uint64_t passed : left_behind_) compare(passed);
  for (uint64_t passed = std::max(first_passed_, head_); passed < position; ++passed) compare(passed);
  return answer;
}

bool CompletionConsumer::is_left_behind(uint64_t position) const {
  return std::any_of(left_behind_.begin(), left_behind_.end(),
                     [&](uint64_t left) { return left < position && (position - left) % ring_.size() == 0; });
}

// The head goes on to `end`. What cannot be consumed yet is left behind.
void CompletionConsumer::leave_behind(uint64_t end) {
  while (head_ < end) {
    Cqe& entry = ring_.entry(head_);
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
    if (state.lap == ring_.lap(head_)) {
      if (state.kind == CqeKind::kTaken)
        entry.state.store(CqeState{state.lap + 1, 0, CqeKind::kFree}.pack(), std::memory_order_release);
      else
        left_behind_.push_back(head_);
    }
    advance();
  }
}

// An entry of a later position than the head's is marked; the head frees it when it comes by. One that was
// left behind joins the ring again where the head meets its place next: as taken, since producers may have
// passed it.
void CompletionConsumer::take_out(uint64_t position) {
  uint64_t joins = position;
  if (position < head_) {
    std::erase(left_behind_, position);
    joins += (head_ - position + ring_.size() - 1) / ring_.size() * ring_.size();
  }
  ring_.entry(position).state.store(CqeState{ring_.lap(joins), 0, CqeKind::kTaken}.pack(),
                                    std::memory_order_release);
}

CompletionConsumer::Found CompletionConsumer::look(uint64_t position, bool* landed) {
  Cqe& entry = ring_.entry(position);
  const uint32_t lap = ring_.lap(position);
  uint64_t word = entry.state.load(std::memory_order_acquire);
  const CqeState state = CqeState::unpack(word);
  if (state.lap != lap) {
    if (!is_left_behind(position)) return Found::kEnd;
    if (position == head_) advance();
    return Found::kPass;
  }
  switch (state.kind) {
    case CqeKind::kFree:
      return Found::kEnd;
    case CqeKind::kPublished:
    case CqeKind::kLanded:
      if (const Earlier earlier = earlier_of_same_qp(position); earlier != Earlier::kNone)
        return earlier == Earlier::kPlacing ? Found::kPass : Found::kFromTheStart;
      *landed = state.kind == CqeKind::kLanded;
      // A peer that reads or writes this adapter's memory may want to scatter it at this moment.
      if (*landed && !entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kTaken}.pack(),
                                                          std::memory_order_acq_rel))
        return Found::kAgain;
      position_ = position;
      return Found::kEntry;
    case CqeKind::kTaken:
      if (position == head_) {
        entry.state.store(CqeState{lap + 1, 0, CqeKind::kFree}.pack(), std::memory_order_release);
        advance();
      }
      return Found::kPass;
    case CqeKind::kClaimed:
      if (!alive_(alive_context_, state.worker)) {
        if (position < head_)
          take_out(position);
        else
          entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kTaken}.pack(),
                                              std::memory_order_acq_rel);
        return position < head_ ? Found::kFromTheStart : Found::kAgain;
      }
      first_passed_ = std::min(first_passed_, position);
      return Found::kPass;
    case CqeKind::kPlacing:
      if (!alive_(alive_context_, state.worker)) {
        entry.state.compare_exchange_strong(word, CqeState{lap, 0, CqeKind::kLanded}.pack(),
                                            std::memory_order_acq_rel);
        return Found::kAgain;
      }
      first_passed_ = std::min(first_passed_, position);
      return Found::kPass;
    default:
      return Found::kEnd;  // hostile bytes: as if the ring ended here
  }
}

Cqe* CompletionConsumer::take_slowly(bool* landed) {
  // What was left behind comes first: it is the oldest. Then the ring.
  for (;;) {
    first_passed_ = kNowhere;
    Found found = Found::kPass;
    for (size_t i = 0; i < left_behind_.size() && found != Found::kEntry && found != Found::kFromTheStart;) {
      found = look(left_behind_[i], landed);
      if (found != Found::kAgain) ++i;
    }
    for (uint64_t position = head_; found != Found::kEntry && found != Found::kFromTheStart;) {
      if (position - head_ >= ring_.size()) return nullptr;
      // Somebody is stopped in the middle of a request, and the others need the room.
      if (position > head_ && (position - head_) * 4 >= ring_.size() &&
          left_behind_.size() < ring_.size() / 4)
        leave_behind(position);
      found = look(position, landed);
      if (found == Found::kEnd) return nullptr;
      if (found == Found::kPass) ++position;
    }
    if (found == Found::kEntry) return &ring_.entry(position_);
  }
}

}  // namespace verbena
