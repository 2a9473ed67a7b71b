// SPDX-License-Identifier: BSD-2-Clause
//
// Which entries of a table in the segment have something to tell the owner: a bitmap of two levels. Peers and the owner's own
// threads add entries, the owner takes them: the cost is that of the entries added, whatever the size of the table.
//
// An entry is added after the flag that it is about, and before the doorbell is rung: leaf first, then summary. So an entry
// whose summary bit the owner takes has its leaf bit set; one that is added once more meanwhile is found at the next ring.
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

  // Calls callback(entry) for each that was added, and takes it out. Answers how many there were.
  template <typename Callback>
  uint32_t take(Callback&& callback) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < kSummaries; ++s) {
      if (summaries[s].load(std::memory_order_relaxed) == 0) continue;
      for (uint64_t summary = summaries[s].exchange(0, std::memory_order_acq_rel); summary != 0; summary &= summary - 1) {
        const uint32_t leaf = s * kWord + static_cast<uint32_t>(std::countr_zero(summary));
        for (uint64_t bits = leaves[leaf].exchange(0, std::memory_order_acq_rel); bits != 0; bits &= bits - 1, ++count)
          callback(leaf * kWord + static_cast<uint32_t>(std::countr_zero(bits)));
      }
    }
    return count;
  }
};

}  // namespace verbena
