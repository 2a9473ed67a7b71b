// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <bit>
#include <cstdint>

namespace verbena {

// `flag` (MAP_HUGETLB, MFD_HUGETLB) for pages of that many bytes (mmap(2), memfd_create(2)).
constexpr int huge_page_flags(unsigned flag, uint64_t page_size) {
  return static_cast<int>(flag | static_cast<unsigned>(std::countr_zero(page_size)) << 26);
}

// A file in memory, named so in /proc/self/maps, whose size stays: no access to a mapping of it raises SIGBUS
// for a page beyond its end. By raw system calls: the preload has hooks. Close-on-exec. `huge_page`: bytes of
// its pages; 0: ordinary ones. -1: there is none (seccomp, descriptors), or RLIMIT_FSIZE has a limit, and to
// make the file would raise SIGXFSZ (setrlimit(2)).
int make_memory_file(const char* name, uint64_t size, uint64_t huge_page = 0);

}  // namespace verbena
