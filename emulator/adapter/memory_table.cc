// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/memory_table.h"

#include <errno.h>

namespace verbena {
namespace {

// Entries wait this long in the queue of free ones before they are used again.
constexpr size_t kReuseDistance = 64;

}  // namespace

int MemoryTable::add(OwnSegment& segment, const Region& region, uint32_t* lkey, uint32_t* rkey) {
  std::lock_guard lock(mutex_);
  uint32_t index = 0;
  if (free_.size() > kReuseDistance || (next_ >= kMaxMrsPerProcess && !free_.empty())) {
    index = free_.front();
    free_.pop_front();
  } else if (next_ < kMaxMrsPerProcess) {
    const uint64_t offset = kMrTableOffset + sizeof(SharedMr) * uint64_t{next_};
    if (segment.commit(offset, sizeof(SharedMr)) != 0) return ENOMEM;
    index = next_++;
  } else {
    return ENOMEM;
  }
  SharedMr& mr = *segment.view().mr(index);
  // `reserved` keeps the tag of the last use, so that the key of a region deregistered is not the next one's.
  mr.reserved = (mr.reserved + 1) & 0xff;
  const auto tag = static_cast<uint8_t>(mr.reserved);
  mr.pd = region.pd;
  mr.access = region.access;
  mr.iova = region.iova;
  mr.length = region.length;
  mr.address = region.address;
  mr.valid.store(0x100u | tag, std::memory_order_release);
  if (segment.view().header().mr_high_water.load(std::memory_order_relaxed) <= index)
    segment.view().header().mr_high_water.store(index + 1, std::memory_order_release);
  *lkey = MemoryKey{index, false, tag}.pack();
  *rkey = MemoryKey{index, true, tag}.pack();
  return 0;
}

void MemoryTable::invalidate(OwnSegment& segment, uint32_t lkey) {
  segment.view().mr(MemoryKey::unpack(lkey).index)->valid.store(0, std::memory_order_release);
  segment.view().header().mr_epoch.fetch_add(1, std::memory_order_acq_rel);
}

void MemoryTable::recycle(uint32_t lkey) {
  std::lock_guard lock(mutex_);
  free_.push_back(MemoryKey::unpack(lkey).index);
}

}  // namespace verbena
