// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/multicast_table.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "adapter/high_water.h"
#include "fabric/node_directory.h"

namespace verbena {
namespace {

using State = MulticastEntry::State;
using Phase = MulticastEntry::Phase;

struct Seen {
  uint32_t index;
  uint64_t word;
  State state;
  MulticastGid gid;
  uint32_t slot_generation, incarnation, device, lid;

  bool is_of(const MulticastMember& member) const {
    return state.slot == member.slot && slot_generation == member.slot_generation &&
           state.qp_index == member.qp_index && incarnation == member.incarnation;
  }
};

}  // namespace

MulticastEntry& MulticastTable::entry(uint32_t index) const { return directory_.multicast_entry(index); }

uint32_t MulticastTable::used() const {
  return std::min(directory_.header().multicast_used.load(std::memory_order_acquire), kMulticastEntries);
}

uint64_t MulticastTable::version() const {
  return directory_.header().multicast_version.load(std::memory_order_acquire);
}

void MulticastTable::changed() const {
  directory_.header().multicast_version.fetch_add(1, std::memory_order_acq_rel);
}

// Calls callback(seen) for each member until the callback returns false.
template <typename Callback>
void MulticastTable::for_each(Callback&& callback) const {
  const uint32_t end = used();
  for (uint32_t i = 0; i < end; ++i) {
    MulticastEntry& e = entry(i);
    Seen seen{};
    seen.index = i;
    seen.word = e.state.load(std::memory_order_acquire);
    seen.state = State::unpack(seen.word);
    if (seen.state.phase != Phase::kMember) continue;
    const uint64_t gid[2] = {e.gid[0].load(std::memory_order_relaxed),
                             e.gid[1].load(std::memory_order_relaxed)};
    std::memcpy(seen.gid.data(), gid, sizeof gid);
    seen.slot_generation = e.slot_generation.load(std::memory_order_relaxed);
    seen.incarnation = e.incarnation.load(std::memory_order_relaxed);
    seen.device = e.device.load(std::memory_order_relaxed);
    seen.lid = e.lid.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (e.state.load(std::memory_order_relaxed) != seen.word) continue;
    if (!callback(seen)) return;
  }
}

bool MulticastTable::within_limits(const MulticastGid& gid, uint32_t device,
                                   const MulticastLimits& limits) const {
  uint32_t all = 0, of_group = 0;
  std::set<MulticastGid> groups;
  for_each([&](const Seen& seen) {
    if (seen.device != device) return true;
    ++all;
    of_group += seen.gid == gid;
    groups.insert(seen.gid);
    return true;
  });
  return all <= limits.members && of_group <= limits.members_of_group && groups.size() <= limits.groups;
}

int MulticastTable::attach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid,
                           uint32_t device, const MulticastLimits& limits) const {
  bool already = false;
  for_each([&](const Seen& seen) {
    already = seen.is_of(member) && seen.gid == gid && seen.lid == lid;
    return !already;
  });
  if (already) return 0;

  for (uint32_t i = 0; i < kMulticastEntries; ++i) {
    MulticastEntry& e = entry(i);
    uint64_t word = e.state.load(std::memory_order_acquire);
    State state = State::unpack(word);
    if (state.phase != Phase::kFree) continue;
    state = {static_cast<uint16_t>(state.uses + 1), member.slot, member.qp_index, Phase::kClaimed};
    raise_high_water(directory_.header().multicast_used, i);  // first: release_all() must find the entry
    if (!e.state.compare_exchange_strong(word, state.pack(), std::memory_order_acq_rel)) continue;
    // A process that reads the fields below and then this state again must find the state changed.
    std::atomic_thread_fence(std::memory_order_release);
    uint64_t words[2];
    std::memcpy(words, gid.data(), sizeof words);
    e.gid[0].store(words[0], std::memory_order_relaxed);
    e.gid[1].store(words[1], std::memory_order_relaxed);
    e.slot_generation.store(member.slot_generation, std::memory_order_relaxed);
    e.incarnation.store(member.incarnation, std::memory_order_relaxed);
    e.device.store(device, std::memory_order_relaxed);
    e.lid.store(lid, std::memory_order_relaxed);
    state.phase = Phase::kMember;
    e.state.store(state.pack(), std::memory_order_release);
    // The new entry is counted, too: when several processes attach at once, none exceeds the limit.
    const bool fits = within_limits(gid, device, limits);
    if (!fits) {
      state.phase = Phase::kFree;
      e.state.store(state.pack(), std::memory_order_release);
    }
    changed();
    return fits ? 0 : ENOMEM;
  }
  return ENOMEM;
}

int MulticastTable::detach(const MulticastMember& member, const MulticastGid& gid, uint32_t lid) const {
  bool found = false;
  for_each([&](const Seen& seen) {
    if (!seen.is_of(member) || seen.gid != gid || seen.lid != lid) return true;
    uint64_t word = seen.word;
    State state = seen.state;
    state.phase = Phase::kFree;
    // Two threads may detach at once; only one of them succeeds.
    found = entry(seen.index).state.compare_exchange_strong(word, state.pack(), std::memory_order_seq_cst);
    return false;
  });
  if (found) changed();
  return found ? 0 : EINVAL;
}

bool MulticastTable::attached(const MulticastMember& member) const {
  bool found = false;
  for_each([&](const Seen& seen) { return !(found = seen.is_of(member)); });
  return found;
}

std::vector<MulticastGid> MulticastTable::groups_of(uint32_t slot) const {
  std::vector<MulticastGid> all;
  for_each([&](const Seen& seen) {
    if (seen.state.slot == slot && std::find(all.begin(), all.end(), seen.gid) == all.end())
      all.push_back(seen.gid);
    return true;
  });
  return all;
}

void MulticastTable::release_all(uint32_t slot) const {
  bool any = false;
  const uint32_t end = used();
  for (uint32_t i = 0; i < end; ++i) {
    MulticastEntry& e = entry(i);
    uint64_t word = e.state.load(std::memory_order_acquire);
    State state = State::unpack(word);
    if (state.phase == Phase::kFree || state.slot != slot) continue;
    state.phase = Phase::kFree;
    any |= e.state.compare_exchange_strong(word, state.pack(), std::memory_order_acq_rel);
  }
  if (any) changed();
}

std::vector<MulticastTable::Found> MulticastTable::members(const MulticastGid& gid) const {
  std::vector<Found> all;
  for_each([&](const Seen& seen) {
    if (seen.gid != gid) return true;
    // Attached under two LIDs: a message is still delivered once (ibv_attach_mcast(3)).
    const bool twice =
        std::any_of(all.begin(), all.end(), [&](const Found& other) { return seen.is_of(other.member); });
    if (!twice)
      all.push_back({{seen.state.slot, seen.slot_generation, seen.state.qp_index, seen.incarnation},
                     seen.index,
                     seen.word});
    return true;
  });
  return all;
}

bool MulticastTable::is_still(const Found& found) const {
  return entry(found.entry).state.load(std::memory_order_seq_cst) == found.state;
}

}  // namespace verbena
