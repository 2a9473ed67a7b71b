// SPDX-License-Identifier: BSD-2-Clause
//
// When a memory window may be bound. Pure functions.
//
// Sources: InfiniBand Architecture Specification vol. 1, 10.6.7 and C10-72 to C10-75, o10-36.2.2,
// o10-37.2.30, o10-37.2.40 (as the kernel's rxe_mw.c cites them); ibv_bind_mw(3).
#pragma once

#include <cstdint>

#include "adapter/memory_table.h"

namespace verbena {

struct Binding {
  uint64_t address;  // in the region's iova space
  uint64_t length;   // 0: unbind, type 1 only
  uint32_t access;   // IBV_ACCESS_REMOTE_*, IBV_ACCESS_ZERO_BASED
};

// The window, and the PD of the queue pair that the bind request was posted to.
struct WindowState {
  KeyKind kind;
  uint32_t pd;
  bool is_bound;
  uint32_t qp_pd;
};

// nullptr: it may be bound. Otherwise the rule that forbids it, a constant string. `region`: null if no
// region has the lkey.
const char* check_binding(const WindowState& window, const MemoryTable::Region* region,
                          const Binding& binding);

// The key-table entry of the bound window. `binding` has passed check_binding(), and its length is not 0.
MemoryTable::Region bound_region(const WindowState& window, const MemoryTable::Region& region,
                                 const Binding& binding);

}  // namespace verbena
