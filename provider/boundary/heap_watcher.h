// SPDX-License-Identifier: BSD-2-Clause
//
// Tells the provider of the program's calls that change memory which the emulator has moved into a file
// (heap_memory.h, watch.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Lives around such a call for [address, address + length).
class HeapChange {
 public:
  HeapChange(const void* address, size_t length);
  HeapChange(const HeapChange&) = delete;
  HeapChange& operator=(const HeapChange&) = delete;
  ~HeapChange();

 private:
  const uint64_t address_;
  const size_t length_;
  const bool is_heap_;
};

// Before a call that shared memory would not allow: such memory in the range becomes private.
void make_heap_private(const void* address, size_t length);

}  // namespace verbena
