// SPDX-License-Identifier: BSD-2-Clause
//
// A cache of one memory region, beside the key table of its adapter (memory_table.h).
#pragma once

#include <cstdint>

#include "adapter/access_rules.h"

namespace verbena {

class SegmentView;

// Caches the region that one user of keys named last. The cache holds as long as no key of the adapter has
// become invalid since. It is for one adapter (the user's own, or one that the user holds a hazard guard on),
// one PD and one use. Not thread-safe.
class KnownRegion {
 public:
  // True: translate() would return kOk, and the region's pages are present. False: call translate(). `epoch`:
  // SegmentHeader::mr_epoch, loaded with acquire. The result is valid while the epoch stays. *address: where
  // `at` lies.
  bool covers(uint32_t epoch, uint32_t key, uint64_t at, uint64_t size, uint64_t* address) const {
    *address = at + shift_;
    return key == key_ && epoch == epoch_ && verbena::covers(iova_, length_, at, size);
  }

  // Remembers the result of translate(), if covers() can answer for that kind of region.
  void remember(const SegmentView& segment, uint32_t key, uint32_t pd, MemoryUse use);
  void forget() { length_ = 0; }
  // Keeps only what lies in [address, address + size). The words of a peer are believed no further than a
  // mapping of its memory goes.
  void narrow_to(uint64_t address, uint64_t size);

 private:
  uint32_t key_ = 0;
  uint32_t epoch_ = 0;
  uint64_t iova_ = 0;
  uint64_t length_ = 0;  // 0: nothing is known
  uint64_t shift_ = 0;   // from the program's address of a byte to where the byte lies
};

}  // namespace verbena
