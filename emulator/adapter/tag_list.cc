// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/tag_list.h"

#include <algorithm>

namespace verbena {
namespace {

// A failed compare-and-swap means that another process has succeeded. The bounds are for damaged memory.
constexpr int kMostTagTries = 1 << 16;

template <typename T>
T load_once(const T& field) {
  return std::atomic_ref(const_cast<T&>(field)).load(std::memory_order_relaxed);
}

template <typename T>
void store_once(T& field, T value) {
  std::atomic_ref(field).store(value, std::memory_order_relaxed);
}

}  // namespace

TagList TagList::of(const SegmentView& segment, SharedSrq& shared) {
  const uint64_t offset = load_once(shared.tag_offset);
  const uint32_t count = load_once(shared.tag_count);
  if (offset == 0 || offset % alignof(SharedTag) != 0 || count == 0 || count > kMostTags) return {};
  auto* const tags = segment.at<SharedTag>(offset, count);
  if (tags == nullptr) return {};
  return {&shared, tags, count, load_once(shared.tag_address)};
}

bool TagList::take(uint64_t tag, uint32_t worker, uint32_t* index, uint64_t* enabled) const {
  for (int tries = 0; tries < kMostTagTries; ++tries) {
    *enabled = phase().enabled;
    uint64_t first = UINT64_MAX, seen = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t word = tags[i].word.load(std::memory_order_acquire);
      const TagWord found = TagWord::unpack(word);
      if (found.state != TagState::kPosted || found.number > *enabled || found.number >= first) continue;
      if ((tag & load_once(tags[i].mask)) != load_once(tags[i].tag)) continue;
      first = found.number;
      seen = word;
      *index = i;
    }
    if (first == UINT64_MAX) return false;
    if (tags[*index].word.compare_exchange_strong(seen, TagWord{TagState::kTaken, first, worker}.pack(),
                                                  std::memory_order_acq_rel))
      return true;
  }
  return false;
}

void TagList::count_unexpected(uint64_t enabled) const {
  uint64_t seen = shared->tag_phase.load(std::memory_order_acquire);
  for (int tries = 0; tries < kMostTagTries; ++tries) {
    const TagPhase now = TagPhase::unpack(seen);
    const TagPhase next{static_cast<uint16_t>(now.unexpected + 1), std::min(now.enabled, enabled)};
    if (shared->tag_phase.compare_exchange_weak(seen, next.pack(), std::memory_order_acq_rel)) return;
  }
}

void TagList::abandon(uint32_t index) const {
  if (index < count) tags[index].word.store(TagWord{TagState::kLost, 0, 0}.pack(), std::memory_order_release);
}

void TagList::post(uint32_t index, uint64_t number, uint64_t tag, uint64_t mask, const WqeSge& sge) const {
  SharedTag& to = tags[index];
  store_once(to.tag, tag);
  store_once(to.mask, mask);
  to.sge.post(sge.address, sge.length, sge.lkey);
  to.word.store(TagWord{TagState::kPosted, number, 0}.pack(), std::memory_order_release);
}

bool TagList::enable(uint64_t number, uint16_t handled) const {
  uint64_t seen = shared->tag_phase.load(std::memory_order_acquire);
  for (int tries = 0; tries < kMostTagTries; ++tries) {
    const TagPhase now = TagPhase::unpack(seen);
    if (now.unexpected != handled) return false;
    if (shared->tag_phase.compare_exchange_weak(seen, TagPhase{now.unexpected, number}.pack(),
                                                std::memory_order_acq_rel))
      return true;
  }
  return false;
}

bool TagList::remove(uint32_t index, uint64_t number) const {
  uint64_t posted = TagWord{TagState::kPosted, number, 0}.pack();
  return tags[index].word.compare_exchange_strong(posted, TagWord{TagState::kFree, 0, 0}.pack(),
                                                  std::memory_order_acq_rel);
}

}  // namespace verbena
