// SPDX-License-Identifier: BSD-2-Clause
//
// Who is at work in whose adapter. An initiator says so before it looks at anything of the target that may be
// taken away, and takes it back when it is done; teardown at the target first makes the object unreachable, then
// waits until nobody who might have seen it before is still at work (as hazard pointers do, Michael 2004).
// The record lies in the node directory, so that the waiting needs no map of the initiators' segments.
#pragma once

#include <cstdint>

#include "fabric/node_directory.h"

namespace verbena {

// Scope of one visit to `target_slot`'s adapter. After construction everything read from the target is at
// least as new as any teardown that does not wait for this visit.
class Visit {
 public:
  Visit(const NodeDirectory& directory, uint32_t own_slot, uint32_t target_slot);
  ~Visit() { hazard_->target.store(0, std::memory_order_release); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Hazard* hazard_;
};

inline constexpr uint32_t kAnySlot = UINT32_MAX;

// Waits until every visit to `target_slot` that had begun before the call is over or its process dead.
// `from_slot`: only that process's visits matter, so that the others, stopped or not, keep nobody waiting.
// `on_stall(context, pid)` is called once for each process that keeps the caller waiting longer than a second.
void wait_for_visitors(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                       void (*on_stall)(void* context, int32_t pid), void* context);

// Waits until every visit that the threads of `own_slot` (this process) had begun is over. Not on a visit.
void wait_for_visits_of(const NodeDirectory& directory, uint32_t own_slot);

// The same as wait_for_visitors, but not longer than about `patience_ns` for each visit. False: somebody is
// still there.
bool visitors_gone(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot, int64_t patience_ns);

}  // namespace verbena
