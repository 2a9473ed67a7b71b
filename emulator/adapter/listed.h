// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's part of the list of contexts and protection domains (ListedObject). Any thread may call.
#pragma once

#include <cstdint>

#include "adapter/segment.h"

namespace verbena {

// Lists the object. Returns its entry, or kMaxListed if the list is full.
inline uint32_t list_object(const SegmentView& view, ListedKind kind, uint32_t number, uint32_t context,
                            uint32_t device) {
  for (uint32_t i = 0; i < kMaxListed; ++i) {
    ListedObject& entry = view.listed(i);
    ListedKind expected = ListedKind::kNone;
    if (entry.kind.load(std::memory_order_relaxed) != ListedKind::kNone ||
        !entry.kind.compare_exchange_strong(expected, ListedKind::kTaken))
      continue;
    entry.number = number;
    entry.context = context;
    entry.device = device;
    entry.kind.store(kind, std::memory_order_release);
    return i;
  }
  return kMaxListed;
}

// Takes it off the list; kMaxListed: it is not on it.
inline void unlist_object(const SegmentView& view, uint32_t entry) {
  if (entry < kMaxListed) view.listed(entry).kind.store(ListedKind::kNone, std::memory_order_release);
}

}  // namespace verbena
