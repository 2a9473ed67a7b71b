// SPDX-License-Identifier: BSD-2-Clause
//
// Access to this process's own memory at addresses that may be invalid: an unmapped address gives an error,
// never a signal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

// True: `error` is what process_vm_*(2) returns where a filter (seccomp(2)) or ptrace's rules forbid the
// call.
bool is_refusal(int error);

// Faults whole pages in, writable if so requested (madvise(2), MADV_POPULATE_READ and _WRITE). 0 or errno. A
// kernel before 5.14 cannot and returns EINVAL, too.
int populate(uintptr_t first_page, size_t length, bool writable);

// True: the kernel can read the byte at `at`, and write it if so requested, on behalf of another process.
bool is_reachable(uintptr_t at, bool writable);

// Copies through a pipe, which needs no permission: write(2) and read(2) report EFAULT. 0; EFAULT: part of
// either side is not mapped, or not writable, and part may have been copied; EMFILE, ENFILE, ENOMEM: no pipe.
int copy_by_pipe(void* to, const void* from, size_t size);

}  // namespace verbena
