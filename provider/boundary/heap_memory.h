// SPDX-License-Identifier: BSD-2-Clause
//
// Private memory of the program that the emulator has moved into a file, so that peers can map it
// (emulator/fabric/shared_heap.h): which it is, and the calls that have another effect on it than on private
// anonymous memory. Which pages these are, the kernel knows best: /proc/self/maps names the file. Lock-free
// and without memory of its own, as allocators make such calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// From now on there may be such memory in the range.
void watch_heap_memory(uint64_t address, uint64_t length);

// Is there some? Almost always decided by some loads, otherwise by a look at the mappings.
bool is_heap_memory(const void* address, size_t length);

// madvise(2) with MADV_DONTNEED or MADV_FREE of a range in which there is some: the pages are zero
// afterwards. 0, or -1 with errno.
int forget_heap_pages(void* address, size_t length, int advice);

// Has note_advice() been called?
bool has_advised();
void note_advice();

}  // namespace verbena
