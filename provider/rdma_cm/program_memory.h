// SPDX-License-Identifier: BSD-2-Clause
//
// Copies between the command layer and the program, by addresses that the program names and that may be
// anything: copy_from_user and copy_to_user of a kernel that lives in the same process (process_vm_readv(2)
// on oneself). Where that call is forbidden (seccomp) they are plain copies, and a bad address faults in the
// program.
//
// 0 or EFAULT: then part may have been copied. Leave errno alone; no cancellation points.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::rdma_cm {

int copy_from_program(void* to, const void* from, size_t size);
int copy_to_program(uint64_t to, const void* from, size_t size);

}  // namespace verbena::rdma_cm
