// SPDX-License-Identifier: BSD-2-Clause
//
// madvise(2) for the emulator's own mappings. Not by the function, which is a hook: what the program has
// advised is looked for with every registration once there is any (fabric/shared_heap.h).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace verbena {

// 0, or -1 and errno.
inline int advise_kernel(void* memory, size_t length, int advice) {
  return static_cast<int>(syscall(SYS_madvise, memory, length, advice));
}

}  // namespace verbena
