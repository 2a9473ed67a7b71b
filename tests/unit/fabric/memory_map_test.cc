// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/memory_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <string>
#include <vector>

namespace verbena {
namespace {

std::vector<MappedRange> ranges_of(std::string_view text) {
  std::vector<MappedRange> ranges;
  for (MappedRange range; take_range(&text, &range);) ranges.push_back(range);
  return ranges;
}

// As proc(5) shows them.
TEST(MemoryMap, OfMaps) {
  const auto ranges = ranges_of(
      "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a program\n"
      "no range\n"
      "7f0000000000-7f0000004000 rw-s 00002000 00:01 1025   /memfd:verbena-heap (deleted)\n"
      "7ffc2ba04000-7ffc2ba25000 ---p 00000000 00:00 0 \n");
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].begin, 0x400000u);
  EXPECT_EQ(ranges[0].end, 0x452000u);
  EXPECT_EQ(ranges[0].offset, 0x1000u);
  EXPECT_EQ(ranges[0].device, makedev(8, 2));
  EXPECT_EQ(ranges[0].inode, 173521u);
  EXPECT_EQ(ranges[0].protection, PROT_READ | PROT_EXEC);
  EXPECT_FALSE(ranges[0].shared);
  EXPECT_EQ(ranges[0].path, "/usr/bin/a program");
  EXPECT_EQ(ranges[1].protection, PROT_READ | PROT_WRITE);
  EXPECT_TRUE(ranges[1].shared);
  EXPECT_EQ(ranges[1].path, "/memfd:verbena-heap (deleted)");
  EXPECT_EQ(ranges[2].protection, PROT_NONE);
  EXPECT_EQ(ranges[2].path, "");
  EXPECT_EQ(ranges[2].flags, "");
}

TEST(MemoryMap, OfSmaps) {
  const auto ranges = ranges_of(
      "7f0000000000-7f0000004000 rw-p 00000000 00:00 0 \n"
      "Size:                 16 kB\n"
      "KernelPageSize:        4 kB\n"
      "FilePmdMapped:         0 kB\n"
      "VmFlags: rd wr mr mw me dc ac \n"
      "7f0000008000-7f0000009000 rw-p 00000000 00:00 0          [heap]\n"
      "Size:                  4 kB\n"
      "VmFlags: rd wr mr mw me lo ac \n"
      "7f0000200000-7f0000400000 rw-p 00000000 00:10 25         /anon_hugepage (deleted)\n"
      "KernelPageSize:     2048 kB\n"
      "VmFlags: rd wr mr mw me de ht \n");
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].flags, " rd wr mr mw me dc ac ");
  EXPECT_EQ(ranges[0].page_size, 4096u);
  EXPECT_EQ(ranges[1].page_size, 0u);
  EXPECT_EQ(ranges[2].page_size, 2048u * 1024);
  EXPECT_EQ(ranges[1].path, "[heap]");
  EXPECT_EQ(ranges[1].flags, " rd wr mr mw me lo ac ");
}

TEST(MemoryMap, OfWhatIsNoMap) {
  for (const char* text : {"", "\n\n", "7f", "7f0000000000-", "7f0000000000-7f0000004000 rw-s", "x-y z"})
    EXPECT_TRUE(ranges_of(text).empty()) << text;
}

TEST(MemoryMap, OfThisProcess) {
  static const char here = 0;
  for (const bool with_flags : {false, true}) {
    const PageText text = read_memory_map(with_flags);
    bool found = false;
    for (const MappedRange& range : ranges_of(text)) {
      const auto at = reinterpret_cast<uint64_t>(&here);
      found = found || (range.begin <= at && at < range.end);
      EXPECT_EQ(range.flags.empty(), !with_flags) << range.path;
    }
    EXPECT_TRUE(found);
  }
  EXPECT_GT(memory_status("VmSize"), 0);
  EXPECT_EQ(memory_status("NoSuchFigure"), -1);
}

}  // namespace
}  // namespace verbena
