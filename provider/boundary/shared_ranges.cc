// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/shared_ranges.h"

#include <atomic>

namespace verbena {
namespace {

constexpr unsigned kMost = 256;

struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: not written yet
};

constinit Range ranges[kMost];
constinit std::atomic<unsigned> taken{0};  // more than kMost: some are not noted

unsigned noted() {
  const unsigned count = taken.load(std::memory_order_acquire);
  return count < kMost ? count : kMost;
}

bool is_noted(uintptr_t begin, uintptr_t end) {
  for (unsigned i = 0; i < noted(); ++i)
    if (end <= ranges[i].end.load(std::memory_order_acquire) &&
        begin >= ranges[i].begin.load(std::memory_order_relaxed))
      return true;
  return false;
}

}  // namespace

void note_shared_range(uintptr_t begin, size_t length) {
  const uintptr_t end = begin + length;
  if (taken.load(std::memory_order_relaxed) > kMost || is_noted(begin, end)) return;
  const unsigned place = taken.fetch_add(1, std::memory_order_acq_rel);
  if (place >= kMost) return;
  ranges[place].begin.store(begin, std::memory_order_relaxed);
  ranges[place].end.store(end, std::memory_order_release);
}

bool was_shared(uintptr_t address) {
  return taken.load(std::memory_order_acquire) > kMost || is_noted(address, address + 1);
}

}  // namespace verbena
