// SPDX-License-Identifier: BSD-2-Clause
//
// Copies between the command layer and the program, at addresses that the program names and that may be
// invalid: copy_from_user and copy_to_user for one process (process_vm_readv(2) on itself). If that call is
// forbidden (seccomp), these are plain copies, and a bad address faults in the program.
//
// 0 or EFAULT; then a part may have been copied. They do not change errno, and are no cancellation points.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::rdma_cm {

int copy_from_program(void* to, const void* from, size_t size);
int copy_to_program(uint64_t to, const void* from, size_t size);

// For memory that need not be there: never faults. False: it is not mapped, or the kernel does not say.
bool read_if_mapped(void* to, uint64_t from, size_t size);

}  // namespace verbena::rdma_cm
