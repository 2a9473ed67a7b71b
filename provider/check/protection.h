// SPDX-License-Identifier: BSD-2-Clause
//
// Buffers that are left alone from posting until the completion is polled, for programs that ask for it:
// nobody may write to those of sends (--enable send-buffer-written), whose whole pages are mapped PROT_READ,
// and nobody may read those of receives (--enable receive-buffer-read), which are PROT_NONE. A thread that
// does is reported, and goes on. Called with the model's lock held, but for has_protected().
#pragma once

#include "check/model.h"

namespace verbena::check {

// A request that is about to be posted. One that brings bytes into memory takes their protection away, and
// one that sends them that of receives. Memory that peers may write to, bytes that an outstanding request may
// write, and memory that the program itself may not write to are not protected.
void protect_buffers(const QueuePair& qp, const Request& request);
void unprotect_buffers(const Request& request);

// A receive of a queue pair that is about to be posted. True: it is guarded, and must arrive elsewhere
// (shadows.h). False: it has no whole page, peers may access it, or another request uses it.
bool protect_receive(const QueuePair& qp, const Request& receive);

// The memory is about to be freed or registered: an allocator or the device writes to it.
void unprotect_memory(uintptr_t begin, uintptr_t end);

// Was any memory ever protected? Most programs' never is.
bool has_protected();

// The request with this serial is not outstanding any more.
void end_protection(uint64_t serial);

}  // namespace verbena::check
