// SPDX-License-Identifier: BSD-2-Clause
//
// The program's calls for memory that is registered: madvise(2), mremap(2), munmap(2), mmap(2), mprotect(2),
// mlock(2), and libc's own.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "heap_fixture.h"

#ifndef MADV_FREE
#define MADV_FREE 8
#endif

namespace verbena::test {
namespace {

using SharedHeapCalls = HeapTest;
constexpr size_t kPages = 16;
constexpr size_t kSize = kPages * kPage;

int ends_by_access(const volatile uint8_t* address) {
  return in_child([=] { return static_cast<int>(*address); });
}

TEST_F(SharedHeapCalls, DontneedGivesZeros) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(madvise(memory + 2 * kPage, 3 * kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(memory, 0, 2 * kPage));
  EXPECT_TRUE(is_zero(memory, 2 * kPage, 5 * kPage));
  EXPECT_TRUE(is_filled(memory, 5 * kPage, kSize));
  EXPECT_TRUE(is_shared(memory, kSize));
}

TEST_F(SharedHeapCalls, DontneedGivesZerosAfterAFork) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  EXPECT_EQ(in_child([&] {
              if (madvise(memory, kPage, MADV_DONTNEED) != 0) return 1;
              return is_zero(memory, 0, kPage) && is_filled(memory, kPage, kSize) ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(is_filled(memory, 0, kSize));
  memory[kPage] = 1;
  ASSERT_EQ(madvise(memory + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_zero(memory, kPage, 2 * kPage));
  EXPECT_TRUE(is_filled(memory, 2 * kPage, kSize));
}

TEST_F(SharedHeapCalls, DontneedAcrossOtherMemory) {
  uint8_t* const memory = map_pages(kPages);
  fill(memory, kSize);
  const Mr mr = register_memory(memory + 4 * kPage, 2 * kPage);
  ASSERT_EQ(madvise(memory + kPage, 10 * kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(memory, 0, kPage));
  EXPECT_TRUE(is_zero(memory, kPage, 11 * kPage));
  EXPECT_TRUE(is_filled(memory, 11 * kPage, kSize));
}

TEST_F(SharedHeapCalls, FreeKeepsWhatIsWrittenLater) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(madvise(memory, 2 * kPage, MADV_FREE), 0);
  memory[1] = 200;
  EXPECT_EQ(memory[1], 200);
  for (size_t i = 2; i < 2 * kPage; ++i) ASSERT_TRUE(memory[i] == 0 || memory[i] == pattern(i)) << i;
  EXPECT_TRUE(is_filled(memory, 2 * kPage, kSize));
}

TEST_F(SharedHeapCalls, MremapGrowsWithZeros) {
  uint8_t* const memory = map_pages(kPages);
  uint8_t* const next = map_pages(kPages);  // as a rule right below
  const Mr mr = register_filled(memory, kSize), of_next = register_filled(next, kSize);
  auto* const grown = static_cast<uint8_t*>(mremap(memory, kSize, 3 * kSize, MREMAP_MAYMOVE));
  ASSERT_NE(grown, MAP_FAILED) << strerror(errno);
  EXPECT_TRUE(is_filled(grown, 0, kSize));
  EXPECT_TRUE(is_zero(grown, kSize, 3 * kSize));
  memset(grown + kSize, 1, 2 * kSize);
  EXPECT_TRUE(is_filled(next, 0, kSize));
  EXPECT_TRUE(is_filled(grown, 0, kSize));
}

TEST_F(SharedHeapCalls, MremapOfAPartMovesIt) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  uint8_t* const target = map_pages(2);
  void* const moved = mremap(memory + 4 * kPage, 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target);
  ASSERT_EQ(moved, target) << strerror(errno);
  for (size_t i = 0; i < 2 * kPage; ++i) ASSERT_EQ(target[i], pattern(4 * kPage + i)) << i;
  EXPECT_EQ(ends_by_access(memory + 4 * kPage), 128 + SIGSEGV);
  EXPECT_TRUE(is_filled(memory, 0, 4 * kPage));
  EXPECT_TRUE(is_filled(memory, 6 * kPage, kSize));
}

TEST_F(SharedHeapCalls, MunmapOfAPart) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(munmap(memory + kPage, kPage), 0);
  EXPECT_EQ(mapping_of(memory + kPage), "");
  EXPECT_FALSE(kernel_reads(memory + kPage));
  EXPECT_FALSE(kernel_writes(memory + kPage));
  EXPECT_EQ(ends_by_access(memory + kPage), 128 + SIGSEGV);
  EXPECT_TRUE(kernel_reads(memory + 2 * kPage));
  EXPECT_TRUE(is_filled(memory, 0, kPage));
  EXPECT_TRUE(is_filled(memory, 2 * kPage, kSize));
}

TEST_F(SharedHeapCalls, MunmapFreesTheMemory) {
  const long before = heap_size();
  uint8_t* const memory = map_pages(1024);
  Mr mr = register_filled(memory, 1024 * kPage);
  EXPECT_GE(heap_size(), before + 4096);
  mr.reset();
  ASSERT_EQ(munmap(memory, 1024 * kPage), 0);
  EXPECT_LE(heap_size(), before + 64);
}

// As free(3) of a large block does. It leaves the file a second after the region ends, also when the device has been
// closed and opened again in between.
TEST_F(SharedHeapCalls, WhatLibcUnmapsLeavesTheFile) {
  const long before = heap_size();
  for (int round = 0; round < 2; ++round) {
    uint8_t* const memory = map_pages(kPages);
    Mr mr = register_filled(memory, kSize);
    ASSERT_EQ(syscall(SYS_munmap, memory, kSize), 0);
    mr.reset();
    if (round != 0) break;
    pd_.reset();
    context_.reset();
    SetUp();
  }
  for (int i = 0; i < 2000 && heap_size() > before; ++i) usleep(10000);
  EXPECT_LE(heap_size(), before);
}

TEST_F(SharedHeapCalls, MapFixedOverAPart) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(
      mmap(memory + 3 * kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      memory + 3 * kPage);
  EXPECT_TRUE(is_filled(memory, 0, 3 * kPage));
  EXPECT_TRUE(is_zero(memory, 3 * kPage, 4 * kPage));
  EXPECT_TRUE(is_filled(memory, 4 * kPage, kSize));
  memory[3 * kPage] = 5;
  EXPECT_EQ(memory[3 * kPage], 5);
}

TEST_F(SharedHeapCalls, Mprotect) {
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(mprotect(memory + kPage, kPage, PROT_READ), 0);
  EXPECT_TRUE(kernel_reads(memory + kPage));
  EXPECT_FALSE(kernel_writes(memory + kPage));
  EXPECT_EQ(in_child([&] {
              memory[kPage] = 1;
              return 0;
            }),
            128 + SIGSEGV);
  ASSERT_EQ(mprotect(memory + kPage, kPage, PROT_NONE), 0);
  EXPECT_FALSE(kernel_reads(memory + kPage));
  EXPECT_EQ(ends_by_access(memory + kPage), 128 + SIGSEGV);
  ASSERT_EQ(mprotect(memory + kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapCalls, LockedMemoryStaysLocked) {
  uint8_t* const memory = map_pages(kPages);
  fill(memory, kSize);
  const long before = status("VmLck");
  ASSERT_EQ(mlock(memory, kSize), 0);
  const Mr mr = register_memory(memory, kSize);
  EXPECT_TRUE(is_shared(memory, kSize));
  EXPECT_EQ(status("VmLck"), before + static_cast<long>(kSize / 1024));
  EXPECT_EQ(munlock(memory, kSize), 0);
  EXPECT_EQ(status("VmLck"), before);
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapCalls, MemoryIsCountedOnce) {
  constexpr size_t kMany = 4096;  // 16 MiB
  uint8_t* const memory = map_pages(kMany);
  fill(memory, kMany * kPage);
  const long space = status("VmSize"), resident = status("VmRSS");
  const Mr mr = register_memory(memory, kMany * kPage);
  EXPECT_TRUE(is_shared(memory));
  EXPECT_NEAR(status("VmSize"), space, 512);
  EXPECT_NEAR(status("VmRSS"), resident, 2048);
  EXPECT_LE(heap_size(), static_cast<long>(kMany * kPage / 1024) + 2048);
}

// Which kinds of mapping a core dump has (core(5)): those of private memory (0), and shared memory without a
// name (1).
TEST_F(SharedHeapCalls, CoreDumpsHaveTheMemory) {
  std::ofstream("/proc/self/coredump_filter") << "0x33";  // the kernel's default
  uint8_t* const memory = map_pages(kPages);
  const Mr mr = register_filled(memory, kSize);
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  char begin[32];
  snprintf(begin, sizeof begin, "%zx-", reinterpret_cast<size_t>(memory));
  while (std::getline(maps, line) && line.rfind(begin, 0) != 0) {
  }
  while (std::getline(maps, line) && line.rfind("VmFlags:", 0) != 0) {
  }
  EXPECT_NE(line, "");
  EXPECT_EQ(line.find(" dd"), std::string::npos) << line;
}

TEST_F(SharedHeapCalls, StackAndStaticDataStay) {
  static uint8_t fixed[2 * kPage];
  uint8_t local[kPage];
  const Mr of_static = register_memory(fixed, sizeof fixed), of_stack = register_memory(local, sizeof local);
  EXPECT_FALSE(is_shared(fixed));
  EXPECT_FALSE(is_shared(local));
}

TEST_F(SharedHeapCalls, MemoryOfTheHeapThatIsTooSmallForAPage) {
  std::vector<std::vector<uint8_t>> blocks;
  std::vector<Mr> regions;
  for (size_t i = 0; i < 200; ++i) {
    blocks.emplace_back(40 + i, static_cast<uint8_t>(i));
    if (i % 3 != 0) continue;
    regions.push_back(register_memory(blocks.back().data(), blocks.back().size()));
    EXPECT_TRUE(is_shared(blocks.back().data()));
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_EQ(blocks[i], std::vector<uint8_t>(40 + i, static_cast<uint8_t>(i)));
}

// libc calls mremap(2) and munmap(2) past every hook.
TEST_F(SharedHeapCalls, ReallocKeepsBlocksApart) {
  constexpr size_t kBlock = 1024 * 1024;  // above M_MMAP_THRESHOLD: mappings of their own, side by side
  std::array<uint8_t*, 4> blocks;
  std::vector<Mr> regions;
  for (uint8_t*& block : blocks) {
    block = static_cast<uint8_t*>(malloc(kBlock));
    regions.push_back(register_filled(block, kBlock));
  }
  for (uint8_t*& block : blocks) {
    block = static_cast<uint8_t*>(realloc(block, 3 * kBlock));
    memset(block + kBlock, 0xee, 2 * kBlock);
  }
  for (uint8_t* block : blocks) EXPECT_TRUE(is_filled(block, 0, kBlock));
  regions.clear();
  for (uint8_t* block : blocks) free(block);
}

TEST_F(SharedHeapCalls, CallocGivesZerosWhereRegisteredMemoryWas) {
  for (const size_t size : {1000u, 100'000u, 1'000'000u}) {
    for (int i = 0; i < 20; ++i) {
      auto* const block = static_cast<uint8_t*>(calloc(1, size));
      EXPECT_TRUE(is_zero(block, 0, size)) << size;
      Mr mr = register_filled(block, size);
      mr.reset();
      free(block);
      malloc_trim(0);
    }
  }
}

// Threads write while their memory is registered: nothing is lost, in the pages of others' blocks neither.
TEST_F(SharedHeapCalls, NoWriteIsLostWhileMemoryMoves) {
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    uint8_t* const memory = map_pages(kPages);
    memset(memory, 0, kSize);
    std::atomic<bool> ends{false};
    std::atomic<int> begun{0};
    std::array<uint64_t, 2> counts{};
    const auto write = [&](size_t which) {
      uint64_t count = 0;
      for (; !ends; ++count, begun |= 1 << which)
        for (size_t page = 0; page < kPages; ++page)
          *reinterpret_cast<uint64_t*>(memory + page * kPage + 64 * which) = count + 1;
      counts[which] = count;
    };
    std::thread first(write, 0), second(write, 1);
    while (begun != 3) sched_yield();
    const Mr mr = register_memory(memory, kSize);
    EXPECT_TRUE(is_shared(memory, kSize));
    ends = true;
    first.join();
    second.join();
    for (size_t page = 0; page < kPages; ++page)
      for (size_t which = 0; which < 2; ++which)
        ASSERT_EQ(*reinterpret_cast<uint64_t*>(memory + page * kPage + 64 * which), counts[which]);
    EXPECT_EQ(munmap(memory, kSize), 0);
  }
}

}  // namespace
}  // namespace verbena::test
