// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/known_region.h"

#include <algorithm>

#include "adapter/segment.h"

namespace verbena {

void KnownRegion::remember(const SegmentView& segment, uint32_t key, uint32_t pd, MemoryUse use) {
  // While the epoch stays, no key has become invalid, and no entry of a key that was valid before has
  // changed.
  const std::atomic<uint32_t>& epoch = segment.header().mr_epoch;
  const uint32_t before = epoch.load(std::memory_order_acquire);
  const MemoryKey parts = MemoryKey::unpack(key);
  const SharedMr* mr = segment.mr(parts.index);
  length_ = 0;
  if (mr == nullptr || parts.index == 0 || parts.index >= segment.keys_used()) return;
  if (parts.remote != is_remote(use) || mr->valid.load(std::memory_order_acquire) != (kKeyValid | parts.tag))
    return;
  if (!segment.is_own() && mr->check != check_of(*mr)) return;
  const unsigned need = required_access(use);
  if (mr->pd != pd || mr->kind != KeyKind::kRegion || (mr->access & need) != need ||
      (mr->access & IBV_ACCESS_ON_DEMAND) != 0)
    return;
  const uint64_t length = mr->length;
  iova_ = mr->iova;
  shift_ = mr->address - iova_;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (epoch.load(std::memory_order_relaxed) != before) return;
  epoch_ = before;
  key_ = key;
  length_ = length;
}

void KnownRegion::narrow_to(uint64_t address, uint64_t size) {
  // Relative to `address`: what the peer says may reach round the end of the address space.
  const uint64_t begin = iova_ + shift_ - address;
  const uint64_t skipped = begin >= uint64_t{1} << 63 ? -begin : 0;  // bytes before `address`
  const uint64_t first = begin + skipped;
  if (first >= size || skipped >= length_) return forget();
  length_ = std::min(length_ - skipped, size - first);
  iova_ += skipped;
}

}  // namespace verbena
