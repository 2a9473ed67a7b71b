// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/shared_regions.h"

#include <algorithm>

#include "adapter/segment.h"
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

template <typename HasEnded>
void SharedRegions::wake(const NodeMembership& membership, const HasEnded& has_ended) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  std::vector<Asker> these;
  {
    std::lock_guard lock(mutex_);
    const auto stays = [&](const Asker& each) { return !has_ended(each); };
    const auto first = std::partition(askers_.begin(), askers_.end(), stays);
    these.assign(first, askers_.end());
    askers_.erase(first, askers_.end());
    count_.store(static_cast<uint32_t>(askers_.size()), std::memory_order_release);
  }
  for (const Asker& each : these)
    kick_slot(membership.directory(), membership.node(), each.slot, each.generation);
}

void SharedRegions::ended(const NodeMembership& membership, uint32_t index) {
  wake(membership, [&](const Asker& each) { return each.index == index; });
}

void SharedRegions::serve(const NodeMembership& membership, const SegmentView& view) {
  if (!some_ended_.load(std::memory_order_relaxed) || !some_ended_.exchange(false, std::memory_order_acquire))
    return;
  wake(membership, [&](const Asker& each) {
    const SharedMr* const mr = view.mr(each.index);
    return mr == nullptr || mr->mappable.load(std::memory_order_relaxed) == 0;
  });
}

}  // namespace verbena
