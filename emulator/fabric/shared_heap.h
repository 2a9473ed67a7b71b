// SPDX-License-Identifier: BSD-2-Clause
//
// Memory of this process that peers can map although the program has not shared it (`verbena run
// --shared-heap`, docs/SHARED-HEAP.md): when the program registers private anonymous memory, its pages move
// into a file in memory, which is then mapped MAP_SHARED in their place. The file is an image of the address
// space: a page's offset is its address.
//
// All functions: any thread, one at a time (a mutex of their own), unless it says otherwise. Lists that are
// kept under the mutex are not in memory of malloc(3) (page_allocator.h).
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "fabric/memory_map.h"

namespace verbena {

// "1": the program runs with --shared-heap.
inline constexpr const char* kSharedHeapVariable = "VERBENA_SHARED_HEAP";

// What the preload tells, and is told (provider/boundary/watch.h).
struct HeapHooks {
  // Calls of the program that change [address, address + length) are watched from now on.
  void (*watch)(uint64_t address, uint64_t length);
  // Has the program given advice (madvise(2)) that the kernel's flags of a mapping have to be read for?
  bool (*has_advised)();
};

// Allows the functions below if the environment asks for it (VERBENA_SHARED_HEAP=1) and the program runs
// under nothing that keeps its own books of memory: valgrind or a sanitizer. Says so if it does.
void allow_shared_heap(const HeapHooks& hooks);
bool is_shared_heap_allowed();

// Moves the pages of [address, address + length) into the file, as far as they are not there. No write to
// them is lost, whichever thread makes it. False: part of the range is no private anonymous memory that may
// be moved, or the kernel cannot hold writes back (held_writes.h); the program has the same bytes either way.
// `may_hold(context, range)`: asked before pages are moved, as a system call of another process that writes
// to them then may fail.
bool move_to_shared_heap(uint64_t address, uint64_t length, bool (*may_hold)(void*, const PageRange&),
                         void* context);

// Gives the pages of the range back: private anonymous memory with the same bytes.
void return_from_shared_heap(uint64_t address, uint64_t length);

// A descriptor of the file with that identity, if it is the heap's; valid while the file has pages of this
// process. -1: it is not.
int shared_heap_descriptor(dev_t device, ino_t inode);

// Frees pages of the file that the program has unmapped.
void sweep_shared_heap();

// The same for [address, address + length), after a call of the program that has changed what is mapped
// there. Neither waits for a lock nor calls malloc(3): the caller may be the program's allocator, with its
// locks held. False: another thread is at work with the heap; sweep_shared_heap() is to be called later.
bool free_unmapped_of_shared_heap(uint64_t address, uint64_t length);

// Around a call of the program that may change what is mapped where pages of the file are: a fork acts on the
// list of mappings meanwhile, and the call waits.
void begin_change_of_shared_heap();
void end_change_of_shared_heap();

// fork(2): a child must have its own copy. The first function locks out the others and returns the ranges
// that a child would share. The second makes them private: parent and child then have the same pages of the
// file, and each its own copy of those that it writes. No byte is copied. The last ones end the lock.
PageVector<PageRange> begin_fork_of_shared_heap();
void make_private_for_fork(const PageVector<PageRange>& ranges);
void end_fork_of_shared_heap(bool in_child);

}  // namespace verbena
