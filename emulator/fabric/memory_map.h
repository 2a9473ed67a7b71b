// SPDX-License-Identifier: BSD-2-Clause
//
// The mappings of this process, as the kernel lists them (proc(5), /proc/pid/maps and /proc/pid/smaps).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "fabric/page_allocator.h"

namespace verbena {

struct PageRange {
  uint64_t begin, end;  // bytes, whole pages
};

inline bool overlaps(const PageRange& range, uint64_t address, uint64_t length) {
  return address < range.end && range.begin < address + length;
}

struct MappedRange {
  uint64_t begin, end, offset;  // offset: of `begin` in the file
  dev_t device;
  ino_t inode;     // 0: no file
  int protection;  // PROT_*
  bool shared;
  std::string_view path;   // as the kernel names it; may end in " (deleted)"; empty: anonymous
  uint64_t page_size = 0;  // bytes, in smaps; 0 in maps
  std::string_view flags;  // VmFlags of smaps, with a space before each and one at the end; empty in maps
};

// The next range of `text`, which is taken off. False: there is none. Lines that are no ranges are passed
// over.
bool take_range(std::string_view* text, MappedRange* out);

// The whole list. "": it cannot be read. `with_flags`: smaps, which takes a walk through all pages. Without
// malloc(3).
PageText read_memory_map(bool with_flags = false);

// A figure of /proc/self/status in KiB, "VmLck" for example. -1: not there. Without malloc(3). `text`: the
// file, which read_status() has read.
PageText read_status();
int64_t memory_status(std::string_view text, const char* name);
inline int64_t memory_status(const char* name) { return memory_status(read_status(), name); }

}  // namespace verbena
