// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/shared_regions.h"

#include <algorithm>

#include "fabric/kick.h"
#include "fabric/node_membership.h"

namespace verbena {

bool SharedRegions::asked(uint32_t index, uint32_t slot, uint32_t generation) {
  std::lock_guard lock(mutex_);
  const auto is_same = [&](const Asker& each) {
    return each.index == index && each.slot == slot && each.generation == generation;
  };
  if (std::any_of(askers_.begin(), askers_.end(), is_same)) return true;
  if (askers_.size() >= kMost) return false;
  askers_.push_back({index, slot, generation});
  count_.store(static_cast<uint32_t>(askers_.size()), std::memory_order_release);
  return true;
}

void SharedRegions::ended(const NodeMembership& membership, uint32_t index) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  std::vector<Asker> these;
  {
    std::lock_guard lock(mutex_);
    const auto is_other = [&](const Asker& each) { return each.index != index; };
    const auto first = std::partition(askers_.begin(), askers_.end(), is_other);
    these.assign(first, askers_.end());
    askers_.erase(first, askers_.end());
    count_.store(static_cast<uint32_t>(askers_.size()), std::memory_order_release);
  }
  for (const Asker& each : these)
    kick_slot(membership.directory(), membership.node(), each.slot, each.generation);
}

}  // namespace verbena
