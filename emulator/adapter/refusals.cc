// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/refusals.h"

namespace verbena {

bool Refusals::add(const RequestRefusal& refusal, uint32_t worker) {
  const uint64_t writing = (uint64_t{worker} << 8) | 0x80;
  const uint64_t number = count.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < kEntries; ++i) {
    RefusalEntry& entry = entries[(number + i) % kEntries];
    uint64_t free = RefusalEntry::kFree;
    if (entry.state.load(std::memory_order_relaxed) != free ||
        !entry.state.compare_exchange_strong(free, writing, std::memory_order_acquire))
      continue;
    entry.number = number;
    entry.refusal = refusal;
    entry.state.store(RefusalEntry::kWritten, std::memory_order_release);
    return true;
  }
  lost.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace verbena
