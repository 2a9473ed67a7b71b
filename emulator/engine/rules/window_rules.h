// SPDX-License-Identifier: BSD-2-Clause
//
// When a memory window may be bound. Pure.
//
// Sources: InfiniBand Architecture Specification vol. 1, 10.6.7 and C10-72 to C10-75, o10-36.2.2,
// o10-37.2.30, o10-37.2.40 (as the kernel's rxe_mw.c cites them); ibv_bind_mw(3).
#pragma once

#include <cstdint>

#include "adapter/memory_table.h"

namespace verbena {

struct Binding {
  uint64_t address;  // in terms of the region
  uint64_t length;   // 0: bound to nothing, type 1 only
  uint32_t access;   // IBV_ACCESS_REMOTE_*, IBV_ACCESS_ZERO_BASED
};

// What the window and the queue pair of the request are.
struct WindowState {
  KeyKind kind;
  uint32_t pd;
  bool is_bound;
  uint32_t qp_pd;
};

// nullptr: yes. Otherwise the rule, a constant string. `region`: null if there is no such region.
const char* check_binding(const WindowState& window, const MemoryTable::Region* region,
                          const Binding& binding);

// What the window becomes. The binding is right, and has a length.
MemoryTable::Region bound_region(const WindowState& window, const MemoryTable::Region& region,
                                 const Binding& binding);

}  // namespace verbena
