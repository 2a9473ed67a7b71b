// SPDX-License-Identifier: BSD-2-Clause
//
// The regions of one peer whose memory this process has mapped, because it lies in a file that the peer has
// mapped MAP_SHARED (region_passing.h). Requests look here for a mapping, and leave a note if there is none
// yet. The service thread gets the mappings, and drops them when their keys have become invalid.
//
// A mapping is used under a hazard guard on the peer, by requests that have found the key valid under that
// guard. It is unmapped when the key is invalid and the guards of this process that may be older have ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "adapter/segment.h"
#include "fabric/node_membership.h"
#include "fabric/region_passing.h"

namespace verbena {

class MappedRegions {
 public:
  static constexpr size_t kMost = 128;  // regions of one peer; further ones are not mapped

  MappedRegions() = default;
  MappedRegions(const MappedRegions&) = delete;
  MappedRegions& operator=(const MappedRegions&) = delete;
  ~MappedRegions();

  enum class State : uint32_t { kFree, kWanted, kAsked, kMapped, kRefused, kTaken, kEnding };

  struct Found {
    State state;                       // kFree: there are too many
    const MappedFile* file = nullptr;  // of kMapped
    bool is_new = false;  // it was not there before: the caller wakes this process's service thread
  };
  // Registration `mappable` of the region with that index (SharedMr). Lock-free. Under a hazard guard.
  Found find(uint32_t region, uint32_t mappable);

  // The service thread's work. `alive`: the peer is. Returns when it must be called again at the latest, in
  // ns from now; -1: not before something happens.
  int64_t serve(const NodeMembership& membership, const SegmentView& view, uint32_t slot, uint32_t generation,
                bool alive);

 private:
  struct Entry {
    std::atomic<uint32_t> mappable{0};  // SharedMr::mappable of the registration; 0: the entry is free
    std::atomic<State> state{State::kFree};
    uint32_t index = 0;  // of the region
    MappedFile file;     // once mapped
    // The service thread's:
    RegionRequest request;
    int64_t deadline = 0;
  };

  bool is_valid(const SegmentView& view, const Entry& entry) const;
  void ask(const NodeMembership& membership, uint32_t slot, uint32_t generation, Entry& entry);
  void take_reply(Entry& entry);

  using Table = std::array<Entry, kMost>;
  std::atomic<uint32_t> used_{0};       // entries that were ever used
  std::atomic<bool> is_wanted_{false};  // the table is
  std::atomic<Table*> table_{nullptr};  // the service thread allocates it
  int process_ = 0;                     // that has made the mappings: a forked child has none of them
};

}  // namespace verbena
