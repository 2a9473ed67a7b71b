// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/mapped_regions.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "adapter/clock.h"
#include "adapter/high_water.h"
#include "fabric/guarded_copy.h"
#include "fabric/hazards.h"
#include "fabric/slot_address.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr int64_t kPatienceForReply = 5'000'000'000;  // ns. A process that is silent for longer is stopped.
constexpr int64_t kLookForReply = 1'000'000;
constexpr int64_t kLookForGuards = 10'000'000;
constexpr int64_t kPatienceForGuards = 20'000;

}  // namespace

MappedRegions::~MappedRegions() {
  Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return;
  for (const Entry& entry : *table)
    if (process_ == getpid()) unmap(entry.file);
  delete table;
}

MappedRegions::Found MappedRegions::find(uint32_t region, uint32_t mappable) {
  Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr)
    return {State::kWanted, nullptr, !is_wanted_.exchange(true, std::memory_order_acq_rel)};
  const uint32_t used = std::min<uint32_t>(used_.load(std::memory_order_acquire), kMost);
  for (uint32_t i = 0; i < used; ++i) {
    const Entry& entry = (*table)[i];
    if (entry.mappable.load(std::memory_order_acquire) != mappable) continue;
    const State state = entry.state.load(std::memory_order_acquire);
    return {state, state == State::kMapped ? &entry.file : nullptr};
  }
  for (uint32_t i = 0; i < kMost; ++i) {
    Entry& entry = (*table)[i];
    State expected = State::kFree;
    // Taken by its state: the service thread frees the entry by the same word, last.
    if (entry.state.load(std::memory_order_relaxed) != State::kFree ||
        !entry.state.compare_exchange_strong(expected, State::kTaken, std::memory_order_acq_rel))
      continue;
    entry.index = region;
    entry.mappable.store(mappable, std::memory_order_release);
    entry.state.store(State::kWanted, std::memory_order_release);
    raise_high_water(used_, i);
    return {State::kWanted, nullptr, true};
  }
  return {State::kFree};
}

bool MappedRegions::is_valid(const SegmentView& view, const Entry& entry) const {
  const SharedMr* const mr = view.mr(entry.index);
  // The number is of this registration alone.
  return mr != nullptr && (mr->valid.load(std::memory_order_acquire) & kKeyValid) != 0 &&
         mr->mappable.load(std::memory_order_acquire) == entry.mappable.load(std::memory_order_relaxed);
}

void MappedRegions::ask(const NodeMembership& membership, uint32_t slot, uint32_t generation, Entry& entry) {
  const RegionQuery query{entry.index, entry.mappable.load(std::memory_order_relaxed), membership.slot(),
                          membership.generation()};
  const bool asked =
      install_copy_guard() &&
      entry.request.begin(slot_address(membership.directory(), membership.node(), slot, generation), query) ==
          0;
  entry.deadline = now_ns() + kPatienceForReply;
  entry.state.store(asked ? State::kAsked : State::kRefused, std::memory_order_release);
}

void MappedRegions::take_reply(Entry& entry) {
  const int error = entry.request.take(&entry.file);
  if (error == EAGAIN && now_ns() < entry.deadline) return;
  entry.request.close();
  process_ = getpid();
  if (error != 0)
    VERBENA_INFO("memory of a peer that both could map is reached by system call: %s (errno %d)",
                 error == ENXIO ? "the peer has no descriptor of the file" : "it cannot be mapped here",
                 error);
  entry.state.store(error == 0 ? State::kMapped : State::kRefused, std::memory_order_release);
}

int64_t MappedRegions::serve(const NodeMembership& membership, const SegmentView& view, uint32_t slot,
                             uint32_t generation, bool alive) {
  int64_t next = -1;
  const auto call_in = [&](int64_t ns) { next = next < 0 ? ns : std::min(next, ns); };
  if (!is_wanted_.load(std::memory_order_acquire)) return -1;
  Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = new (std::nothrow) Table;
    table_.store(table, std::memory_order_release);
    return -1;  // the next request takes an entry
  }
  const uint32_t used = std::min<uint32_t>(used_.load(std::memory_order_acquire), kMost);
  for (uint32_t i = 0; i < used; ++i) {
    Entry& entry = (*table)[i];
    const State state = entry.state.load(std::memory_order_acquire);
    if (state == State::kFree || state == State::kTaken) continue;
    if (state == State::kEnding || !alive || !is_valid(view, entry)) {
      // Requests that begin from now on do not find the mapping. Those that remember it look the key up: the
      // owner raises the epoch after it has made the key invalid, and may be stopped in between.
      if (state != State::kEnding) {
        entry.state.store(State::kEnding, std::memory_order_release);
        if (alive) view.header().mr_epoch.fetch_add(1, std::memory_order_seq_cst);
      }
      if (!hazards_released(membership.directory(), slot, membership.slot(), kPatienceForGuards)) {
        call_in(kLookForGuards);
        continue;
      }
      entry.request.close();
      unmap(entry.file);
      entry.file = {};
      entry.mappable.store(0, std::memory_order_release);
      entry.state.store(State::kFree, std::memory_order_release);
      continue;
    }
    if (state == State::kWanted) ask(membership, slot, generation, entry);
    if (entry.state.load(std::memory_order_relaxed) == State::kAsked) {
      take_reply(entry);
      if (entry.state.load(std::memory_order_relaxed) == State::kAsked) call_in(kLookForReply);
    }
  }
  return next;
}

}  // namespace verbena
