// SPDX-License-Identifier: BSD-2-Clause
//
// Which mappings of this process may become mappings of the shared heap's file (shared_heap.h), and what the
// new ones have to inherit.
#pragma once

#include "fabric/memory_map.h"

namespace verbena {

// The name of the file, as memfd_create(2) takes it and as mappings show it. For huge pages their size
// follows: "verbena-heap-2048kB". (provider/boundary/heap_memory.cc looks for both, too.)
inline constexpr const char* kHeapFile = "verbena-heap";

// Does the mapping show such a file? It may be MAP_PRIVATE, after a fork.
bool is_moved(const MappedRange& mapping);

// A flag of smaps (proc(5), VmFlags), "dc" for example. False as well if the list has none.
bool has_flag(const MappedRange& mapping, const char* flag);

// Private anonymous memory of huge pages (MAP_HUGETLB)?
bool is_anonymous_huge(const MappedRange& mapping);

// Does may_move() need `mapping` with flags and page size (smaps)?
bool needs_page_size(const MappedRange& mapping);

// May the pages of `wanted` be moved, which are part of `mapping`? `before`: the mapping before that.
bool may_move(const PageRange& wanted, const MappedRange& mapping, const MappedRange& before);

// Static data of the program and its libraries, or this thread's thread_local variables?
bool is_static(const PageRange& range);

// What the program has asked for by madvise(2) and mlock(2).
struct Advice {
  unsigned kept = 0;  // bits
  bool locked = false;
};
Advice advice_of(const MappedRange& mapping);
void advise(const PageRange& range, const Advice& advice);

// Does the kernel give memory with that advice transparent huge pages (sysfs, transparent_hugepage/enabled)?
bool has_transparent_pages(const Advice& advice);

}  // namespace verbena
