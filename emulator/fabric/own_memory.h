// SPDX-License-Identifier: BSD-2-Clause
//
// This process's own memory by addresses that may be anything: what is not there is an answer, never a
// signal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// The errno of process_vm_*(2) where a filter (seccomp(2)) or ptrace's rules keep this process from it.
bool is_refusal(int error);

// Has whole pages brought in, writable ones if so asked (madvise(2), MADV_POPULATE_READ and _WRITE). 0 or errno; EINVAL
// also where the kernel, before 5.14, cannot.
int populate(uintptr_t first_page, size_t length, bool writable);

// Can the byte at `at` be read, and written if so asked, by the kernel on another's behalf?
bool is_reachable(uintptr_t at, bool writable);

// Copies, by way of a pipe, which needs no permission: write(2) and read(2) say EFAULT. 0; EFAULT: part of
// either side is not mapped, or not writable; part may have been copied; EMFILE, ENFILE, ENOMEM: no pipe.
int copy_by_pipe(void* to, const void* from, size_t size);

}  // namespace verbena
