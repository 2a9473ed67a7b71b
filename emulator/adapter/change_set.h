// SPDX-License-Identifier: BSD-2-Clause
//
// The set of table entries in the segment that have something to report to the owner: a bitmap of two levels.
// Peers and the owner's own threads add entries, and the owner takes them. The cost depends on the number of
// entries added, not on the size of the table.
//
// An entry is added after its flag is set and before the doorbell is rung: leaf first, then summary. So an
// entry whose summary bit the owner takes has its leaf bit set. An entry that is added again meanwhile is
// found at the next ring.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace verbena {

template <uint32_t kEntries>
struct ChangeSet {
  static constexpr uint32_t kWord = 64;
  static constexpr uint32_t kLeaves = kEntries / kWord;
  static constexpr uint32_t kSummaries = kLeaves / kWord;
  static_assert(kEntries % (kWord * kWord) == 0);

  std::atomic<uint64_t> summaries[kSummaries];
  std::atomic<uint64_t> leaves[kLeaves];

  void add(uint32_t entry) {
    leaves[entry / kWord].fetch_or(uint64_t{1} << entry % kWord, std::memory_order_release);
    const uint32_t leaf = entry / kWord;
    summaries[leaf / kWord].fetch_or(uint64_t{1} << leaf % kWord, std::memory_order_release);
  }

  // Takes each added entry out, and calls callback(entry).
  template <typename Callback>
  void take(Callback&& callback) {
    for (uint32_t s = 0; s < kSummaries; ++s) {
      if (summaries[s].load(std::memory_order_relaxed) == 0) continue;
      for (uint64_t summary = summaries[s].exchange(0, std::memory_order_acq_rel); summary != 0; summary &= summary - 1) {
        const uint32_t leaf = s * kWord + static_cast<uint32_t>(std::countr_zero(summary));
        for (uint64_t bits = leaves[leaf].exchange(0, std::memory_order_acq_rel); bits != 0; bits &= bits - 1)
          callback(leaf * kWord + static_cast<uint32_t>(std::countr_zero(bits)));
      }
    }
  }
};

}  // namespace verbena
