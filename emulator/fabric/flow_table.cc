// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/flow_table.h"

#include <errno.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "adapter/high_water.h"
#include "fabric/node_directory.h"

namespace verbena {
namespace {

using FlowState = MulticastEntry::State;
using FlowPhase = MulticastEntry::Phase;
using FlowWords = std::array<uint64_t, sizeof(FlowFields) / sizeof(uint64_t)>;

void store_fields(FlowEntry::Words& to, const FlowFields& fields) {
  const auto words = std::bit_cast<FlowWords>(fields);
  for (size_t i = 0; i < words.size(); ++i) to[i].store(words[i], std::memory_order_relaxed);
}

FlowFields load_fields(const FlowEntry::Words& from) {
  FlowWords words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = from[i].load(std::memory_order_relaxed);
  return std::bit_cast<FlowFields>(words);
}

constexpr uint32_t kDrops = 1u << 24, kPasses = 1u << 25;

uint32_t action_of(const FlowRule& rule) {
  return uint32_t{rule.priority} | static_cast<uint32_t>(rule.kind) << 16 | (rule.drops ? kDrops : 0) |
         (rule.passes ? kPasses : 0);
}

// False: the entry is no rule, or is being changed.
bool read_rule(const FlowEntry& entry, uint32_t index, FlowTable::Found* out) {
  const uint64_t word = entry.state.load(std::memory_order_acquire);
  const FlowState state = FlowState::unpack(word);
  if (state.phase != FlowPhase::kMember) return false;
  FlowRule& rule = out->rule;
  rule.values = load_fields(entry.values);
  rule.mask = load_fields(entry.mask);
  const uint32_t action = entry.action.load(std::memory_order_relaxed);
  rule.priority = static_cast<uint16_t>(action);
  rule.kind = static_cast<FlowKind>(action >> 16 & 3);
  rule.drops = (action & kDrops) != 0;
  rule.passes = (action & kPasses) != 0;
  rule.device = entry.device.load(std::memory_order_relaxed);
  rule.qp = {state.slot, entry.slot_generation.load(std::memory_order_relaxed), state.qp_index,
             entry.incarnation.load(std::memory_order_relaxed)};
  out->number = entry.number.load(std::memory_order_relaxed);
  out->handle = {index, word};
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.state.load(std::memory_order_relaxed) == word;
}

void fill_rule(FlowEntry& entry, const FlowRule& rule, uint64_t number) {
  store_fields(entry.values, rule.values);
  store_fields(entry.mask, rule.mask);
  entry.action.store(action_of(rule), std::memory_order_relaxed);
  entry.device.store(rule.device, std::memory_order_relaxed);
  entry.slot_generation.store(rule.qp.slot_generation, std::memory_order_relaxed);
  entry.incarnation.store(rule.qp.incarnation, std::memory_order_relaxed);
  entry.number.store(number, std::memory_order_relaxed);
  entry.frames.store(0, std::memory_order_relaxed);
  entry.bytes.store(0, std::memory_order_relaxed);
}

}  // namespace

FlowEntry& FlowTable::entry(uint32_t index) const { return directory_.flow_entry(index); }

uint32_t FlowTable::used() const {
  return std::min(directory_.header().flows_used.load(std::memory_order_acquire), kFlowEntries);
}

uint64_t FlowTable::version() const {
  return directory_.header().flow_version.load(std::memory_order_seq_cst);
}

void FlowTable::changed() const { directory_.header().flow_version.fetch_add(1, std::memory_order_seq_cst); }

uint32_t FlowTable::rules_of(uint32_t device) const {
  uint32_t count = 0;
  Found found;
  for (uint32_t i = 0; i < used(); ++i)
    if (read_rule(entry(i), i, &found) && found.rule.device == device) ++count;
  return count;
}

int FlowTable::add(const FlowRule& rule, uint32_t limit, Handle* out) const {
  for (uint32_t i = 0; i < kFlowEntries; ++i) {
    FlowEntry& e = entry(i);
    uint64_t word = e.state.load(std::memory_order_acquire);
    FlowState state = FlowState::unpack(word);
    if (state.phase != FlowPhase::kFree) continue;
    state = {static_cast<uint16_t>(state.uses + 1), rule.qp.slot, rule.qp.qp_index, FlowPhase::kClaimed};
    raise_high_water(directory_.header().flows_used, i);  // first: release_all() must find the entry
    if (!e.state.compare_exchange_strong(word, state.pack(), std::memory_order_acq_rel)) continue;
    // A process that reads the fields below and then this state again must find the state changed.
    std::atomic_thread_fence(std::memory_order_release);
    fill_rule(e, rule, directory_.header().flow_version.fetch_add(1, std::memory_order_seq_cst));
    state.phase = FlowPhase::kMember;
    e.state.store(state.pack(), std::memory_order_release);
    // The new rule is counted, too: when several processes add one at once, none exceeds the limit.
    const bool fits = rules_of(rule.device) <= limit;
    if (!fits) {
      state.phase = FlowPhase::kFree;
      e.state.store(state.pack(), std::memory_order_release);
    }
    changed();
    *out = {i, state.pack()};
    return fits ? 0 : ENOMEM;
  }
  return ENOMEM;
}

void FlowTable::end(const Handle& handle) const {
  FlowState state = FlowState::unpack(handle.state);
  state.phase = FlowPhase::kClaimed;
  uint64_t word = handle.state;
  if (entry(handle.entry).state.compare_exchange_strong(word, state.pack(), std::memory_order_seq_cst))
    changed();
}

void FlowTable::free_entry(const Handle& handle) const {
  FlowState state = FlowState::unpack(handle.state);
  state.phase = FlowPhase::kClaimed;
  uint64_t word = state.pack();
  state.phase = FlowPhase::kFree;
  entry(handle.entry).state.compare_exchange_strong(word, state.pack(), std::memory_order_acq_rel);
}

bool FlowTable::has_rule(const MulticastMember& qp) const {
  Found found;
  for (uint32_t i = 0; i < used(); ++i) {
    if (!read_rule(entry(i), i, &found)) continue;
    const MulticastMember& other = found.rule.qp;
    if (other.slot == qp.slot && other.slot_generation == qp.slot_generation &&
        other.qp_index == qp.qp_index && other.incarnation == qp.incarnation)
      return true;
  }
  return false;
}

void FlowTable::release_all(uint32_t slot) const {
  bool any = false;
  const uint32_t end = used();
  for (uint32_t i = 0; i < end; ++i) {
    FlowEntry& e = entry(i);
    uint64_t word = e.state.load(std::memory_order_acquire);
    FlowState state = FlowState::unpack(word);
    if (state.phase == FlowPhase::kFree || state.slot != slot) continue;
    state.phase = FlowPhase::kFree;
    any |= e.state.compare_exchange_strong(word, state.pack(), std::memory_order_acq_rel);
  }
  if (any) changed();
}

std::vector<FlowTable::Found> FlowTable::rules() const {
  std::vector<Found> all;
  Found found;
  for (uint32_t i = 0; i < used(); ++i)
    if (read_rule(entry(i), i, &found)) all.push_back(found);
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return std::tuple(a.rule.kind, a.rule.priority, a.number) <
           std::tuple(b.rule.kind, b.rule.priority, b.number);
  });
  return all;
}

bool FlowTable::is_still(const Handle& handle) const {
  return entry(handle.entry).state.load(std::memory_order_seq_cst) == handle.state;
}

void FlowTable::count(const Handle& handle, uint32_t bytes) const {
  FlowEntry& e = entry(handle.entry);
  e.frames.fetch_add(1, std::memory_order_relaxed);
  e.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

FlowTable::Counts FlowTable::counts(const Handle& handle) const {
  const FlowEntry& e = entry(handle.entry);
  return {e.frames.load(std::memory_order_acquire), e.bytes.load(std::memory_order_acquire)};
}

}  // namespace verbena
