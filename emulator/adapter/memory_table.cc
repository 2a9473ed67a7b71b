// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/memory_table.h"

#include <errno.h>

#include "adapter/high_water.h"

namespace verbena {
namespace {

// Free entries wait in a queue until this many are in it, and are reused only then.
constexpr size_t kReuseDistance = 64;

// The number of a registration, and the region that it is of (SharedMr).
struct Mappable {
  uint32_t number, region;
};

void fill(SharedMr& mr, const MemoryTable::Region& region, uint32_t qpn, const Mappable& mappable) {
  mr.pd = region.pd;
  mr.access = region.access;
  mr.iova = region.iova;
  mr.length = region.length;
  mr.address = region.address;
  mr.kind = region.kind;
  mr.qpn = qpn;
  mr.check = check_of(mr);
  mr.region = mappable.region;
  mr.mappable.store(mappable.number, std::memory_order_relaxed);
}

// Makes the entry valid: first the owner's copy.
void publish(OwnSegment& segment, MemoryKey key) {
  const SegmentView& view = segment.view();
  for (SharedMr* mr : {view.mr(key.index), view.shared_mr(key.index)}) {
    mr->last_tag = key.tag;
    mr->valid.store(kKeyValid | key.tag, std::memory_order_release);
  }
}

}  // namespace

bool is_scatter_target(const SegmentView& segment, uint32_t lkey, uint32_t pd, uint64_t address,
                       uint64_t size) {
  const MemoryKey parts = MemoryKey::unpack(lkey);
  if (parts.index == 0 || parts.remote) return false;
  const SharedMr* mr = segment.mr(parts.index);
  if (mr == nullptr || mr->pd != pd) return false;
  if (const uint32_t valid = mr->valid.load(std::memory_order_acquire);
      valid != (kKeyValid | parts.tag) && valid != (kKeyEnding | parts.tag))
    return false;
  if (mr->kind == KeyKind::kNullRegion) return size <= mr->length && address == mr->address;
  return mr->kind == KeyKind::kRegion && mr->address == mr->iova &&
         (mr->access & IBV_ACCESS_ON_DEMAND) == 0 &&
         check_use(mr->access, mr->iova, mr->length, MemoryUse::local_scatter, address, size) ==
             AccessCheck::ok;
}

Translation translate_special(const SegmentView& segment, const SharedMr& mr, MemoryKey parts, uint32_t qpn,
                              MemoryUse use, uint64_t at, uint64_t size) {
  if (mr.kind == KeyKind::kNullRegion) {
    if (parts.remote) return {KeyCheck::kUnknown, 0};
    if (size > mr.length) return {KeyCheck::kOutside, 0};
    return {KeyCheck::kOk, use == MemoryUse::local_gather ? mr.iova : mr.address};
  }
  if (!parts.remote) return {KeyCheck::kUnknown, 0};
  if (mr.kind == KeyKind::kWindow2 && mr.qpn != qpn) return {KeyCheck::kOtherQp, 0};
  Translation result{KeyCheck::kOutside, 0};
  const AccessCheck check = check_use(mr.access, mr.iova, mr.length, use, at, size);
  if (check == AccessCheck::no_right) result.check = KeyCheck::kNoRight;
  if (check == AccessCheck::ok) result = {KeyCheck::kOk, mr.address + (at - mr.iova)};
  // Unlike regions, windows change while others read them: the fields read belong together if the tag is
  // unchanged.
  std::atomic_thread_fence(std::memory_order_acquire);
  for (const SharedMr* entry : {&mr, static_cast<const SharedMr*>(segment.shared_mr(parts.index))})
    if (entry == nullptr || entry->valid.load(std::memory_order_relaxed) != (kKeyValid | parts.tag))
      return {KeyCheck::kUnknown, 0};
  return result;
}

int MemoryTable::take_index(OwnSegment& segment, uint32_t* index) {
  if (free_.size() > kReuseDistance || (next_ >= kMaxMrsPerProcess && !free_.empty())) {
    *index = free_.front();
    free_.pop_front();
    return 0;
  }
  if (next_ >= kMaxMrsPerProcess) return ENOMEM;
  const uint64_t offset = kMrTableOffset + sizeof(SharedMr) * uint64_t{next_};
  if (segment.commit(offset, sizeof(SharedMr)) != 0) return ENOMEM;
  *index = next_++;
  return 0;
}

void MemoryTable::fill_entries(OwnSegment& segment, uint32_t index, const Region& region) {
  uint32_t mappable = 0;
  while (region.mappable && mappable == 0) mappable = mappable_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (mappable != 0) segment.view().header().has_mappable.store(1, std::memory_order_release);
  for (SharedMr* mr : {segment.view().mr(index), segment.view().shared_mr(index)})
    fill(*mr, region, 0, {mappable, index});
}

int MemoryTable::add(OwnSegment& segment, const Region& region, uint32_t* lkey, uint32_t* rkey) {
  std::lock_guard lock(mutex_);
  uint32_t index = 0;
  if (int error = take_index(segment, &index); error != 0) return error;
  // The key of a deregistered region must not be the key of the next region.
  const auto tag = static_cast<uint8_t>(segment.view().mr(index)->last_tag + 1);
  fill_entries(segment, index, region);
  publish(segment, {index, false, tag});
  raise_high_water(segment.view().header().mr_high_water, index);
  *lkey = MemoryKey{index, false, tag}.pack();
  *rkey = MemoryKey{index, true, tag}.pack();
  return 0;
}

void MemoryTable::change(OwnSegment& segment, uint32_t lkey, const Region& region) {
  const MemoryKey key = MemoryKey::unpack(lkey);
  fill_entries(segment, key.index, region);
  publish(segment, key);
}

int MemoryTable::add_window(OwnSegment& segment, KeyKind kind, uint32_t pd, uint32_t* rkey) {
  std::lock_guard lock(mutex_);
  uint32_t index = 0;
  if (int error = take_index(segment, &index); error != 0) return error;
  SharedMr& mr = *segment.view().mr(index);
  mr.last_tag = (mr.last_tag + 1) & 0xff;
  fill_entries(segment, index, {.pd = pd, .access = 0, .iova = 0, .length = 0, .address = 0, .kind = kind});
  raise_high_water(segment.view().header().mr_high_water, index);
  *rkey = MemoryKey{index, true, static_cast<uint8_t>(mr.last_tag)}.pack();
  return 0;
}

void MemoryTable::bind_window(OwnSegment& segment, uint32_t rkey, const Region& window, uint32_t qpn,
                              uint32_t region) {
  const MemoryKey key = MemoryKey::unpack(rkey);
  const std::atomic<uint32_t>& of_region = segment.view().mr(region)->mappable;
  const uint32_t mappable = of_region.load(std::memory_order_seq_cst);
  for (SharedMr* mr : {segment.view().mr(key.index), segment.view().shared_mr(key.index)}) {
    fill(*mr, window, qpn, {mappable, region});
    // not_mappable() may have come to the region in between, and to the window before this call.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (of_region.load(std::memory_order_relaxed) != mappable)
      mr->mappable.store(0, std::memory_order_relaxed);
  }
  publish(segment, key);
}

SharedMr* find_window(const SegmentView& segment, uint32_t rkey) {
  const MemoryKey key = MemoryKey::unpack(rkey);
  if (key.index == 0 || !key.remote) return nullptr;
  if (key.index >= segment.keys_used()) return nullptr;
  const SharedMr* mr = segment.mr(key.index);
  if (mr == nullptr || (mr->kind != KeyKind::kWindow1 && mr->kind != KeyKind::kWindow2)) return nullptr;
  return segment.shared_mr(key.index);
}

bool unbind_window(SharedMr& window, uint32_t rkey) {
  uint32_t bound = kKeyValid | MemoryKey::unpack(rkey).tag;
  return window.valid.compare_exchange_strong(bound, 0, std::memory_order_acq_rel);
}

void MemoryTable::invalidate(OwnSegment& segment, uint32_t lkey) {
  const MemoryKey key = MemoryKey::unpack(lkey);
  segment.view().mr(key.index)->valid.store(kKeyEnding | key.tag, std::memory_order_release);
  segment.view().shared_mr(key.index)->valid.store(0, std::memory_order_release);
  segment.view().header().mr_epoch.fetch_add(1, std::memory_order_acq_rel);
}

void MemoryTable::not_mappable(OwnSegment& segment, uint32_t index, uint32_t mappable) {
  for (SharedMr* mr : {segment.view().mr(index), segment.view().shared_mr(index)}) {
    uint32_t found = mappable;
    mr->mappable.compare_exchange_strong(found, 0, std::memory_order_seq_cst);
  }
}

void MemoryTable::recycle(OwnSegment& segment, uint32_t lkey) {
  std::lock_guard lock(mutex_);
  const uint32_t index = MemoryKey::unpack(lkey).index;
  segment.view().mr(index)->valid.store(0, std::memory_order_relaxed);
  free_.push_back(index);
}

}  // namespace verbena
