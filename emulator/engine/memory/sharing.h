// SPDX-License-Identifier: BSD-2-Clause
//
// Regions in memory that this process has mapped MAP_SHARED, or that --shared-heap has moved to such memory:
// a peer may map them as well, and then needs no system call to reach them.
#pragma once

#include <cstdint>
#include <span>

#include "fabric/shared_heap.h"

namespace verbena {

struct ServiceCall;
class Process;

// May [address, address + length) be such memory? A hint, made when a region is registered: it must cost
// nothing for other memory. Without a hint of the program's calls of mmap(2) (shared_memory_hint of
// emulator.h) the answer is no.
bool may_be_shared(uint64_t address, uint64_t length);

// Makes [address, address + length) such memory if the program runs with --shared-heap. False: it is not.
bool move_to_heap(Process& process, uint64_t address, uint64_t length);

// The program is about to change what is mapped in the ranges: peers reach the regions in them by system call
// from now on. Waits for the requests that are under way, for no longer than a moment. Takes no lock and does
// not call malloc(3): the caller may be the program's allocator, with its locks held.
void end_mappings(Process& process, std::span<const PageRange> ranges);

// A region of this process is deregistered: what libc gives back to the kernel afterwards, unseen, is to
// leave the heap's file as well.
void region_ended(Process& process);
// Does so when it is time, in the service thread. Returns when to call it again, in ns from now; -1: not
// before the next region ends.
int64_t sweep_heap_when_due();
// The device is closed. The service thread of the next process object knows nothing of those regions.
void forget_ended_regions();

// Serves a call of ServiceNumber::kRegion. In the service thread.
void pass_region(Process& process, ServiceCall& call);

}  // namespace verbena
