// SPDX-License-Identifier: BSD-2-Clause
//
// The tags of a shared receive queue (IBV_SRQT_TM, ibv_post_srq_ops(3)). The owner adds and deletes them;
// requesters of any process match their messages.
//
// Invariants, each true after any instruction of any process:
// - A posted tag is taken, or deleted, by one compare-and-swap on its word. A word of a posted tag never
// comes
//   twice, so what was read of the tag before belongs to that word.
// - Of several tags that match, the one that was added first is taken.
// - A message that meets no tag is counted before its completion is published, in the same word that says up
// to
//   which tag the list is used. So no tag that was added after the message can be used before the program
//   knows of it.
// - A requester that dies between counting and publishing leaves a count that the program never reaches: then
//   new tags are not used, and their messages are unexpected ones.
#pragma once

#include <cstdint>

#include "adapter/segment.h"

namespace verbena {

struct TagList {
  SharedSrq* shared = nullptr;
  SharedTag* tags = nullptr;  // nullptr: the queue matches no tags, or its offset lies outside the segment
  uint32_t count = 0;
  uint64_t address = 0;  // of `tags` in the owner's address space

  static TagList of(const SegmentView& segment, SharedSrq& shared);

  // Requester, under a hazard guard: takes the first tag that matches `tag` for `worker`. False: none does;
  // *enabled is for count_unexpected().
  bool take(uint64_t tag, uint32_t worker, uint32_t* index, uint64_t* enabled) const;

  // Requester: the message of a take() that found none is about to complete. Tags above `enabled` are not
  // used any more.
  void count_unexpected(uint64_t enabled) const;

  // Taker, instead of a completion: there will be none.
  void abandon(uint32_t index) const;

  // Owner: the tag in `index`, which is free, becomes the newest: the one with `number`. It is not used
  // before enable().
  void post(uint32_t index, uint64_t number, uint64_t tag, uint64_t mask, const WqeSge& sge) const;

  // Owner: tags up to `number` are used, if the program has handled all unexpected messages.
  bool enable(uint64_t number, uint16_t handled) const;

  // Owner: takes a posted tag out. False: a message has taken it.
  bool remove(uint32_t index, uint64_t number) const;

  TagPhase phase() const { return TagPhase::unpack(shared->tag_phase.load(std::memory_order_acquire)); }
};

// Is a number in place of a slot that of a tag?
constexpr bool is_tag(uint32_t slot) { return (slot & kTagSlot) != 0; }
constexpr uint32_t tag_index(uint32_t slot) { return slot & ~kTagSlot; }

}  // namespace verbena
