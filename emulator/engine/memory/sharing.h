// SPDX-License-Identifier: BSD-2-Clause
//
// Regions in memory that this process has mapped MAP_SHARED: a peer may map them as well, and then needs no
// system call to reach them.
#pragma once

#include <cstdint>

namespace verbena {

struct ServiceCall;
class Process;

// May [address, address + length) be such memory? A hint, made when a region is registered: it must cost
// nothing for other memory. Without a hint of the program's calls of mmap(2) (shared_memory_hint of
// emulator.h) the answer is no.
bool may_be_shared(uint64_t address, uint64_t length);

// Serves a call of ServiceNumber::kRegion. In the service thread.
void pass_region(Process& process, ServiceCall& call);

}  // namespace verbena
