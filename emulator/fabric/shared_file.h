// SPDX-License-Identifier: BSD-2-Clause
//
// Which file lies behind memory of this process that it has mapped MAP_SHARED (proc(5), /proc/pid/maps)?
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena {

// The file behind a range of memory.
struct SharedFile {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t offset = 0;          // of the first byte of the range in the file
  uint64_t begin = 0, end = 0;  // the mapping that the range begins in
  std::string path;             // as the kernel names it; may be gone, or end in " (deleted)"
};

// Reads the lines of `maps`. False: [address, address + length) is not covered by shared mappings of one file
// that follow each other in the file as in memory.
bool find_shared_file(std::string_view maps, uint64_t address, uint64_t length, SharedFile* out);

// The same for this process.
bool find_shared_file(uint64_t address, uint64_t length, SharedFile* out);

// Is the page of `address` one of a file, or of shared memory? Cheaper than the above. False: it is not, or
// the page is not there.
bool is_file_page(uint64_t address);
// Of two addresses?
bool are_file_pages(uint64_t address, uint64_t other);

// A descriptor of that file which this process has open for reading, and for writing if `writable`. It is the
// program's, and may be closed at any time. -1: none.
int find_open_descriptor(const SharedFile& file, bool writable);

// Opens the file by its name. -1: it has none (any more), or that is another file now. For
// with_own_descriptors() (descriptor_table.h).
int open_shared_file(const SharedFile& file, bool writable);

}  // namespace verbena
