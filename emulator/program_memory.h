// SPDX-License-Identifier: BSD-2-Clause
//
// The program's calls for its memory that --shared-heap (docs/SHARED-HEAP.md) has to know of. For the hooks
// of these calls (provider/boundary/watch.h). Any thread.
#pragma once

#include <cstdint>

namespace verbena {

// What is needed of the preload. watch(): calls of the program that change what is mapped in the range are to
// be told from now on. has_advised(): the program has called madvise(2) for what a new mapping has to
// inherit.
struct ProgramMemory {
  void (*watch)(uint64_t address, uint64_t length);
  bool (*has_advised)();
};
// Called when a device is opened. Without it no memory is moved.
void set_program_memory(const ProgramMemory& memory);

// The program is about to unmap the range, to map something else there, or to change its protection. Takes no
// lock and does not call malloc(3): an allocator may make such calls with its locks held.
void memory_changes(uint64_t address, uint64_t length);
// It has: pages that it has given up are freed. As above.
void memory_changed(uint64_t address, uint64_t length);
// The program is about to move the range, or to give it a property that shared memory cannot have: it becomes
// ordinary private memory.
void memory_leaves(uint64_t address, uint64_t length);

}  // namespace verbena
