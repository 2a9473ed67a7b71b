// SPDX-License-Identifier: BSD-2-Clause
//
// This process's own memory by addresses that may be anything: what is not there is an answer, never a
// signal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// Does the kernel let this process do without process_vm_*(2)? A filter answers so (seccomp(2)), or ptrace's
// rules.
bool is_refusal(int error);

// Can the byte at `at` be read, and written if so asked, by the kernel on another's behalf?
bool is_reachable(uintptr_t at, bool writable);

// Copies, by way of a pipe, which needs no permission: write(2) and read(2) say EFAULT. 0; EFAULT: part of
// either side is not mapped, or not writable; part may have been copied; EMFILE, ENFILE, ENOMEM: no pipe.
int copy_by_pipe(void* to, const void* from, size_t size);

}  // namespace verbena
