// SPDX-License-Identifier: BSD-2-Clause
//
// Which processes have asked for the memory of which regions of this process (fabric/region_passing.h). They
// may have mapped it, and are woken when the region's keys become invalid: an idle peer does not keep memory
// that its owner has given up.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena {

class NodeMembership;
class SegmentView;

class SharedRegions {
 public:
  static constexpr size_t kMost = 4096;

  // The process in `slot` has asked for region `index`. False: there are too many; it gets nothing.
  bool asked(uint32_t index, uint32_t slot, uint32_t generation);

  // The keys of region `index` are invalid: wakes the processes that have asked for it.
  void ended(const NodeMembership& membership, uint32_t index);

  // Regions have ceased to be mappable, while their keys stay valid: serve() wakes the processes that have
  // asked for them. Takes no lock.
  void some_ended() { some_ended_.store(true, std::memory_order_release); }
  void serve(const NodeMembership& membership, const SegmentView& view);  // in the service thread

 private:
  struct Asker {
    uint32_t index, slot, generation;
  };
  // Takes those out for which `has_ended(asker)`, and wakes them.
  template <typename HasEnded>
  void wake(const NodeMembership& membership, const HasEnded& has_ended);

  std::atomic<bool> some_ended_{false};
  std::atomic<uint32_t> count_{0};
  std::mutex mutex_;
  std::vector<Asker> askers_;
};

}  // namespace verbena
