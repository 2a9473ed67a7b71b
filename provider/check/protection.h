// SPDX-License-Identifier: BSD-2-Clause
//
// Send buffers that nobody may write to, for programs that ask for it (--enable send-buffer-written): the
// whole pages of a buffer are mapped PROT_READ from posting until the completion is polled. A thread that
// writes to them is reported where it does, and goes on. Called with the model's lock held, but for
// has_protected().
#pragma once

#include "check/model.h"

namespace verbena::check {

// A request that is about to be posted. One that brings bytes into memory takes their protection away. Memory
// that peers may write to, bytes that an outstanding request may write, and memory that the program itself
// may not write to are not protected.
void protect_buffers(const QueuePair& qp, const Request& request);
void unprotect_buffers(const Request& request);

// The memory is about to be freed or registered: an allocator or the device writes to it.
void unprotect_memory(uintptr_t begin, uintptr_t end);

// Was any memory ever protected? Most programs' never is.
bool has_protected();

// The request with this serial is not outstanding any more.
void end_protection(uint64_t serial);

}  // namespace verbena::check
