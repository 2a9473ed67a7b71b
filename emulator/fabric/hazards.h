// SPDX-License-Identifier: BSD-2-Clause
//
// Teardown waits for hazard guards (hazard_guard.h).
#pragma once

#include <cstdint>

#include "fabric/hazard_guard.h"
#include "fabric/node_directory.h"

namespace verbena {

inline constexpr uint32_t kAnySlot = UINT32_MAX;

// Waits until every hazard guard on `target_slot` that began before the call is released or its process dead.
// `from_slot`: only guards of that process are waited for, so that other processes, stopped or not, do not
// delay the caller. `on_stall(context, pid)` is called once for each process that delays the caller for
// longer than a second.
void wait_for_hazards(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      void (*on_stall)(void* context, int32_t pid), void* context);

// Waits until every hazard guard that threads of `own_slot` (this process) began before the call is released.
// The caller must hold no guard.
void wait_for_hazards_of(const NodeDirectory& directory, uint32_t own_slot);

// As wait_for_hazards(), but waits no longer than about `patience_ns` for each guard. False: a guard is still
// held.
bool hazards_released(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      int64_t patience_ns);

// The same for those guards alone under which words are changed in place, by any process.
bool word_changes_released(const NodeDirectory& directory, uint32_t target_slot, int64_t patience_ns);

}  // namespace verbena
