// SPDX-License-Identifier: BSD-2-Clause
#include "cm/id_table.h"

#include <errno.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "adapter/high_water.h"
#include "cm/id_table_file.h"
#include "cm/port_chain.h"
#include "no_cancellation.h"
#include "observe/log.h"

namespace verbena::cm {
namespace {

using Phase = EntryPhase;

constexpr uint32_t kGenerationMask = 0xffffff;

// Claims a free entry of `states` for the owner, the next one from `first` on. False: there is none.
bool claim(std::atomic<uint64_t>* states, uint32_t count, uint32_t first, const Owner& owner, uint32_t* index,
           EntryState* claimed) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t candidate = (first + i) % count;
    uint64_t word = states[candidate].load(std::memory_order_acquire);
    EntryState state = EntryState::unpack(word);
    if (state.phase != Phase::kFree) continue;
    state = {static_cast<uint16_t>(state.use + 1), owner.generation, owner.slot, Phase::kClaimed};
    if (state.use == 0) state.use = 1;
    if (!states[candidate].compare_exchange_strong(word, state.pack(), std::memory_order_seq_cst)) continue;
    *index = candidate;
    *claimed = state;
    return true;
  }
  return false;
}

void set_phase(std::atomic<uint64_t>& word, EntryState* state, Phase phase) {
  state->phase = phase;
  word.store(state->pack(), std::memory_order_seq_cst);
}

// Frees the entry, unless its state has changed meanwhile.
void free_entry(std::atomic<uint64_t>& word, uint64_t seen) {
  EntryState state = EntryState::unpack(seen);
  state.phase = Phase::kFree;
  word.compare_exchange_strong(seen, state.pack(), std::memory_order_seq_cst);
}

// `address` with the port, or the whole service id, of `bound`. If the families differ: `bound`.
Address with_port_of(const Address& address, const Address& bound) {
  if (address.family() != bound.family()) return bound;
  Address out = address;
  if (address.family() == kFamilyIb) {
    SockaddrIb ib = address.ib();
    ib.sid = bound.ib().sid;
    ib.sid_mask = bound.ib().sid_mask;
    out = Address::of(ib);
  } else {
    set_port(&out, port_of(bound));
  }
  return out;
}

Gid gid_in(const GroupEntry& entry) {
  const uint64_t words[2] = {entry.gid[0].load(std::memory_order_relaxed),
                             entry.gid[1].load(std::memory_order_relaxed)};
  Gid gid;
  std::memcpy(gid.data(), words, sizeof words);
  return gid;
}

}  // namespace

// The owner that a state names. False: it is gone.
bool living_owner(const NodeDirectory& directory, const EntryState& state, Owner* owner) {
  if (state.slot >= kMaxSlots) return false;
  const uint32_t generation = directory.slot(state.slot).generation.load(std::memory_order_acquire);
  *owner = {state.slot, generation};
  return (generation & kGenerationMask) == state.generation && directory.alive(state.slot, generation);
}

IdTable::~IdTable() {
  if (file_ != nullptr) unmap_id_table(file_);
}

int IdTable::open(const NodeDirectory& directory, const std::string& node, bool only_if_there) {
  const NoCancellation guard;
  IdTableFile* file = nullptr;
  // A process of the node keeps the file's descriptor, for those that come after it has lost its name.
  KeptDescriptor* kept = only_if_there ? nullptr : &kept_;
  const int error = map_id_table(node, directory.header().node_id, only_if_there, &file, kept);
  if (error != 0) return error;
  if (file_ != nullptr) unmap_id_table(file_);
  file_ = file;
  directory_ = &directory;
  if (!only_if_there) sweep();
  return 0;
}

// ---- ids ----

int IdTable::add(const Owner& owner, const IdFacts& facts, IdHandle* out) const {
  uint32_t index;
  EntryState state;
  // Entries rotate, so that a handle of an earlier use meets a later use as late as possible.
  const uint32_t turn = file_->next_id.load(std::memory_order_relaxed);
  bool claimed = claim(file_->id_states, kMaxNodeIds, turn, owner, &index, &state);
  if (!claimed) {
    sweep();
    claimed = claim(file_->id_states, kMaxNodeIds, turn, owner, &index, &state);
  }
  if (!claimed) {
    VERBENA_WARN(cm_too_many_ids, "rdma_create_id: the node has %u ids, which is all there may be",
                 kMaxNodeIds);
    return ENOMEM;
  }
  file_->next_id.store((index + 1) % kMaxNodeIds, std::memory_order_relaxed);
  IdEntry& entry = file_->ids[index];
  entry.bucket.store(0, std::memory_order_relaxed);
  entry.backlog.store(0, std::memory_order_relaxed);
  entry.groups.store(0, std::memory_order_relaxed);
  IdFacts fresh = facts;
  fresh.flags = static_cast<uint8_t>(facts.flags & ~(kIdBound | kIdListening));
  write_facts(entry, fresh);
  set_phase(file_->id_states[index], &state, Phase::kLive);
  *out = {index, state.use};
  return 0;
}

bool IdTable::live_state(const IdHandle& id, uint64_t* word) const {
  if (id.none() || id.index >= kMaxNodeIds) return false;
  *word = file_->id_states[id.index].load(std::memory_order_acquire);
  const EntryState state = EntryState::unpack(*word);
  return state.use == id.use && state.phase == Phase::kLive;
}

void IdTable::remove(const IdHandle& id) const {
  uint64_t word;
  if (!live_state(id, &word)) return;
  if (file_->ids[id.index].groups.load(std::memory_order_relaxed) != 0) leave_all(id);
  chain_out(*file_, id.index, word);
  free_entry(file_->id_states[id.index], word);
}

void IdTable::publish(const IdHandle& id, const IdFacts& facts) const {
  uint64_t word;
  if (!live_state(id, &word)) return;
  IdEntry& entry = file_->ids[id.index];
  const IdFacts before = read_facts(entry);
  constexpr uint8_t kOurs = kIdBound | kIdListening;
  IdFacts after = facts;
  after.flags = static_cast<uint8_t>((facts.flags & ~kOurs) | (before.flags & kOurs));
  if ((before.flags & kIdBound) != 0) {
    after.local = with_port_of(facts.local, before.local);
    after.space = before.space;
  }
  write_facts(entry, after);
}

bool IdTable::read(const IdHandle& id, IdRecord* out) const {
  uint64_t word;
  Owner owner;
  if (!live_state(id, &word) || !living_owner(*directory_, EntryState::unpack(word), &owner)) return false;
  const IdEntry& entry = file_->ids[id.index];
  *out = {id, owner, read_facts(entry), entry.backlog.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return file_->id_states[id.index].load(std::memory_order_acquire) == word;
}

void IdTable::for_each_id(const std::function<void(const IdRecord&)>& callback) const {
  for (uint32_t i = 0; i < kMaxNodeIds; ++i) {
    const EntryState state = EntryState::unpack(file_->id_states[i].load(std::memory_order_acquire));
    IdRecord record;
    if (state.phase == Phase::kLive && read({i, state.use}, &record)) callback(record);
  }
}

// ---- groups ----

int IdTable::join(const IdHandle& id, const Gid& mgid, bool send_only) const {
  uint64_t word;
  Owner owner;
  if (!live_state(id, &word) || !living_owner(*directory_, EntryState::unpack(word), &owner)) return EINVAL;
  file_->ids[id.index].groups.fetch_add(1, std::memory_order_relaxed);
  uint32_t index;
  EntryState state;
  bool claimed = claim(file_->group_states, kMaxNodeGroups, 0, owner, &index, &state);
  if (!claimed) {
    sweep();
    claimed = claim(file_->group_states, kMaxNodeGroups, 0, owner, &index, &state);
  }
  if (!claimed) return ENOMEM;
  raise_high_water(file_->groups_used, index);
  GroupEntry& entry = file_->groups[index];
  uint64_t words[2];
  std::memcpy(words, mgid.data(), sizeof words);
  entry.gid[0].store(words[0], std::memory_order_relaxed);
  entry.gid[1].store(words[1], std::memory_order_relaxed);
  entry.id_index.store(id.index, std::memory_order_relaxed);
  entry.id_use.store(id.use, std::memory_order_relaxed);
  entry.send_only.store(send_only, std::memory_order_relaxed);
  set_phase(file_->group_states[index], &state, Phase::kLive);
  return 0;
}

template <typename Callback>
void IdTable::for_each_group_entry(Callback&& callback) const {
  const uint32_t end = std::min(file_->groups_used.load(std::memory_order_acquire), kMaxNodeGroups);
  for (uint32_t i = 0; i < end; ++i) {
    const uint64_t word = file_->group_states[i].load(std::memory_order_acquire);
    const EntryState state = EntryState::unpack(word);
    GroupRecord record;
    if (state.phase != Phase::kLive || !living_owner(*directory_, state, &record.owner)) continue;
    const GroupEntry& entry = file_->groups[i];
    record.id = {entry.id_index.load(std::memory_order_relaxed),
                 entry.id_use.load(std::memory_order_relaxed)};
    record.mgid = gid_in(entry);
    record.send_only = entry.send_only.load(std::memory_order_relaxed) != 0;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (file_->group_states[i].load(std::memory_order_acquire) != word) continue;
    if (!callback(record, i, word)) return;
  }
}

void IdTable::leave(const IdHandle& id, const Gid& mgid) const {
  for_each_group_entry([&](const GroupRecord& record, uint32_t index, uint64_t word) {
    if (record.id != id || record.mgid != mgid) return true;
    free_entry(file_->group_states[index], word);
    return false;
  });
}

void IdTable::leave_all(const IdHandle& id) const {
  for_each_group_entry([&](const GroupRecord& record, uint32_t index, uint64_t word) {
    if (record.id == id) free_entry(file_->group_states[index], word);
    return true;
  });
}

void IdTable::for_each_group(const std::function<void(const GroupRecord&)>& callback) const {
  for_each_group_entry([&](const GroupRecord& record, uint32_t, uint64_t) {
    uint64_t word;
    if (live_state(record.id, &word)) callback(record);
    return true;
  });
}

// ---- processes that have ended ----

void IdTable::sweep() const {
  Owner owner;
  for (uint32_t i = 0; i < kMaxNodeIds; ++i) {
    const uint64_t word = file_->id_states[i].load(std::memory_order_acquire);
    const EntryState state = EntryState::unpack(word);
    if (state.phase == Phase::kFree || living_owner(*directory_, state, &owner)) continue;
    chain_out(*file_, i, word);
    free_entry(file_->id_states[i], word);
  }
  // a process that has died may have claimed an entry beyond those ever used
  for (uint32_t i = 0; i < kMaxNodeGroups; ++i) {
    const uint64_t word = file_->group_states[i].load(std::memory_order_acquire);
    const EntryState state = EntryState::unpack(word);
    if (state.phase != Phase::kFree && !living_owner(*directory_, state, &owner))
      free_entry(file_->group_states[i], word);
  }
}

std::string_view name_of(IdState state) {
  constexpr std::array<std::string_view, 12> kNames = {
      "idle",       "bound",     "resolving address", "address resolved", "resolving route", "route resolved",
      "connecting", "connected", "disconnected",      "listening",        "time wait",       "device gone"};
  const auto index = static_cast<size_t>(state);
  return index < kNames.size() ? kNames[index] : "?";
}

}  // namespace verbena::cm
