// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace verbena {

// A file in memory, named so in /proc/self/maps, whose size stays: no access to a mapping of it raises SIGBUS
// for a page beyond its end. By raw system calls: the preload has hooks. Close-on-exec. -1: there is none
// (seccomp, descriptors), or RLIMIT_FSIZE has a limit, and to make the file would raise SIGXFSZ
// (setrlimit(2)).
int make_memory_file(const char* name, uint64_t size);

}  // namespace verbena
