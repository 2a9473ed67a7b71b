// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_holders.h"

#include <atomic>

#include "fabric/node_directory.h"
#include "fabric/process_identity.h"

namespace verbena {
namespace {

constexpr uint32_t kMostLooks = 32;  // at processes, when one is added

bool replace(std::atomic<uint64_t>& entry, uint64_t before, uint64_t identity) {
  return entry.compare_exchange_strong(before, identity, std::memory_order_acq_rel);
}

}  // namespace

void add_holder(const NodeDirectory& directory, pid_t pid) {
  const uint64_t identity = identity_of_process(pid);
  if (identity == 0) return;
  for (uint32_t i = 0; i < kMaxHolders; ++i)
    if (directory.holder(i).load(std::memory_order_acquire) == identity) return;
  uint32_t looks = 0;
  for (uint32_t i = 0; i < kMaxHolders; ++i) {
    std::atomic<uint64_t>& entry = directory.holder(i);
    const uint64_t other = entry.load(std::memory_order_acquire);
    if (other != 0 && (looks++ >= kMostLooks || process_lives(other))) continue;
    if (replace(entry, other, identity)) return;
  }
}

uint32_t count_holders(const NodeDirectory& directory, uint64_t except) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kMaxHolders; ++i) {
    std::atomic<uint64_t>& entry = directory.holder(i);
    const uint64_t identity = entry.load(std::memory_order_acquire);
    if (identity == 0 || identity == except) continue;
    if (process_lives(identity))
      ++count;
    else
      replace(entry, identity, 0);
  }
  return count;
}

}  // namespace verbena
