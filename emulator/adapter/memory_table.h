// SPDX-License-Identifier: BSD-2-Clause
//
// The memory regions of one adapter. The owner adds and removes; everybody who works on the adapter looks up.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "adapter/access_rules.h"
#include "adapter/segment.h"

namespace verbena {

enum class KeyCheck : uint8_t { kOk, kUnknown, kOtherPd, kNoRight, kOutside };

struct Translation {
  KeyCheck check;
  uint64_t address;  // in the owner's address space, when ok
};

// May `key` be used in `pd` for `use` on [at, at + size)? `remote` tells which of the two keys it must be. The
// entry stays what it is for as long as the caller is the owner holding off removal, or a visitor (hazards.h).
inline Translation translate(const SegmentView& segment, uint32_t key, bool remote, uint32_t pd, MemoryUse use,
                             uint64_t at, uint64_t size) {
  const MemoryKey parts = MemoryKey::unpack(key);
  if (parts.index == 0 || parts.index >= kMaxMrsPerProcess || parts.remote != remote)
    return {KeyCheck::kUnknown, 0};
  if (parts.index >= segment.header().mr_high_water.load(std::memory_order_acquire)) return {KeyCheck::kUnknown, 0};
  const SharedMr* mr = segment.mr(parts.index);
  if (mr == nullptr || mr->valid.load(std::memory_order_acquire) != (0x100u | parts.tag))
    return {KeyCheck::kUnknown, 0};
  if (mr->pd != pd) return {KeyCheck::kOtherPd, 0};
  switch (check_use(mr->access, mr->iova, mr->length, use, at, size)) {
    case AccessCheck::ok:
      return {KeyCheck::kOk, mr->address + (at - mr->iova)};
    case AccessCheck::no_right:
      return {KeyCheck::kNoRight, 0};
    case AccessCheck::outside:
      break;
  }
  return {KeyCheck::kOutside, 0};
}

// The owner's side. Thread-safe.
class MemoryTable {
 public:
  struct Region {
    uint32_t pd;
    uint32_t access;
    uint64_t iova;
    uint64_t length;
    uint64_t address;
  };

  // Enters a region; *lkey and *rkey name it from now on. ENOMEM: the table is full.
  int add(OwnSegment& segment, const Region& region, uint32_t* lkey, uint32_t* rkey);

  // Makes the keys invalid and begins a new epoch. The caller then waits for visitors before anybody may think
  // that the region is out of use, and calls recycle() last.
  void invalidate(OwnSegment& segment, uint32_t lkey);
  void recycle(uint32_t lkey);

 private:
  std::mutex mutex_;
  std::deque<uint32_t> free_;  // first in, first out: a key is reused as late as can be
  uint32_t next_ = 1;
};

}  // namespace verbena
