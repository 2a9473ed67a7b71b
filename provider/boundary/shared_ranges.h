// SPDX-License-Identifier: BSD-2-Clause
//
// Where the program has mapped files MAP_SHARED. Ranges are added and never taken out: what is asked is
// whether a closer look is worth its system calls. Lock-free and without memory of its own: mmap(2) is called
// by allocators, and between vfork and exec.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

void note_shared_range(uintptr_t begin, size_t length);

// True also if there were too many ranges to note them all.
bool was_shared(uintptr_t address);

}  // namespace verbena
