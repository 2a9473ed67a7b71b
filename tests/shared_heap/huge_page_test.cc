// SPDX-License-Identifier: BSD-2-Clause
//
// Registered memory of private huge pages (MAP_HUGETLB), and of transparent ones (MADV_HUGEPAGE).
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "heap_fixture.h"

namespace verbena::test {
namespace {

constexpr size_t kHuge = 2 * 1024 * 1024;

// Huge pages of the machine (Documentation/admin-guide/mm/hugetlbpage.rst). One test at a time has them;
// others may take one or two for a moment.
class Pool {
 public:
  // At least `pages` are free while this exists, if the machine has them or gives them.
  explicit Pool(long pages) : lock_(open(path("nr_hugepages").c_str(), O_RDONLY | O_CLOEXEC)) {
    flock(lock_, LOCK_EX);
    // Surplus pages are in use, and go when they are not.
    former_ = figure("nr_hugepages") - figure("surplus_hugepages");
    if (free() < pages) write("nr_hugepages", figure("nr_hugepages") + pages - free());
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    write("nr_hugepages", former_);
    close(lock_);
  }

  static long free() { return figure("free_hugepages") - figure("resv_hugepages"); }

 private:
  static std::string path(const std::string& name) {
    return "/sys/kernel/mm/hugepages/hugepages-2048kB/" + name;
  }
  static long figure(const std::string& name) {
    long value = 0;
    std::ifstream(path(name)) >> value;
    return value;
  }
  static void write(const std::string& name, long value) { std::ofstream(path(name)) << value; }

  const int lock_;
  long former_ = 0;
};

class SharedHeapHugePages : public HeapTest {
 protected:
  static constexpr size_t kPages = 4;
  static constexpr size_t kSize = kPages * kHuge;
  // The memory itself, one for a moment and one that the emulator keeps.
  static constexpr long kNeeded = kPages + 2;

  void SetUp() override {
    HeapTest::SetUp();
    pool_.emplace(2 * kNeeded);
    if (Pool::free() < 2 * kNeeded) GTEST_SKIP() << "the machine has too few huge pages";
  }
  void TearDown() override {
    for (const auto& [memory, size] : mapped_) munmap(memory, size);
    pool_.reset();
    HeapTest::TearDown();
  }

  uint8_t* map_huge(size_t size = kSize) {
    void* const memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    EXPECT_NE(memory, MAP_FAILED) << strerror(errno);
    mapped_.emplace_back(memory, size);
    return static_cast<uint8_t*>(memory);
  }
  // The parent writes to each page of registered memory, then the child ends with what `child` returns: 0.
  void expect_fork_keeps(uint8_t* memory, const std::function<int()>& child) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t process = fork();
    if (process == 0) {
      char go = 0;
      close(ends[1]);
      _exit(read(ends[0], &go, 1) == 1 ? child() : 2);
    }
    close(ends[0]);
    EXPECT_FALSE(is_shared(memory));
    for (size_t i = 0; i < kPages; ++i) ++memory[i * kHuge + 7];
    EXPECT_EQ(write(ends[1], "g", 1), 1);
    close(ends[1]);
    int ended = -1;
    ASSERT_EQ(waitpid(process, &ended, 0), process);
    EXPECT_EQ(ended, 0);
    for (size_t i = 0; i < kPages; ++i) --memory[i * kHuge + 7];
    EXPECT_TRUE(is_filled(memory, 0, kSize));
  }
  // Leaves `pages` free ones to the emulator.
  void take_all_but(long pages) {
    if (const long more = Pool::free() - pages; more > 0) map_huge(static_cast<size_t>(more) * kHuge);
  }

  // A descriptor of the heap's file that is mapped there.
  static int open_file_at(const void* memory) {
    struct stat file;
    unsigned long inode = 0;
    EXPECT_EQ(sscanf(mapping_of(memory).c_str(), "%*s %*s %*s %*s %lu", &inode), 1);
    for (int fd = 0; fd < 1024; ++fd)
      if (fstat(fd, &file) == 0 && file.st_ino == inode)
        if (const int opened = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
            opened >= 0 && is_heap_file(opened))
          return opened;
    ADD_FAILURE() << "the heap has no such file";
    return -1;
  }
  static long kibibytes_in(int fd) {
    struct stat file {};
    return fstat(fd, &file) == 0 ? file.st_blocks / 2 : -1;
  }
  // madvise(2) with that advice fails in this thread from now on.
  static bool refuse_advice(int advice, int error) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(advice), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
  }

 private:
  static bool is_heap_file(int fd) {
    char target[64] = "";
    return readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target - 1) > 0 &&
           strncmp(target, "/memfd:verbena-heap", 19) == 0;
  }

  std::optional<Pool> pool_;
  std::vector<std::pair<void*, size_t>> mapped_;
};

TEST_F(SharedHeapHugePages, AreMoved) {
  uint8_t* const memory = map_huge();
  fill(memory, kSize);
  // From the midst of a page to the midst of another one: both move whole.
  const Mr mr = register_memory(memory + kHuge + 12345, kHuge);
  EXPECT_FALSE(is_shared(memory));
  EXPECT_TRUE(is_shared(memory + kHuge, 2 * kHuge));
  EXPECT_FALSE(is_shared(memory + 3 * kHuge));
  EXPECT_TRUE(is_filled(memory, 0, kSize));
  const Mr all = register_memory(memory, kSize);
  EXPECT_TRUE(is_shared(memory, kSize));
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapHugePages, LeaveTheFileWithMunmap) {
  constexpr long kOne = kHuge / 1024;
  const long before = heap_size();
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  EXPECT_EQ(heap_size(), before + 4 * kOne);
  ASSERT_EQ(munmap(memory + kHuge, kHuge), 0);
  EXPECT_EQ(heap_size(), before + 3 * kOne);
  EXPECT_TRUE(is_filled(memory, 0, kHuge));
  EXPECT_TRUE(is_filled(memory, 2 * kHuge, kSize));
  EXPECT_FALSE(kernel_reads(memory + kHuge));
}

// libc unmaps by itself what free(3) gives back, and no hook sees it. A peer that is stopped may have the
// file mapped.
TEST_F(SharedHeapHugePages, LeaveTheFileThatOthersHave) {
  uint8_t* const memory = map_huge();
  Mr mr = register_filled(memory, kSize);
  const int file = open_file_at(memory);
  EXPECT_EQ(kibibytes_in(file), static_cast<long>(kSize / 1024));
  ASSERT_EQ(syscall(SYS_munmap, memory, kSize), 0);
  mr.reset();
  for (int i = 0; i < 2000 && kibibytes_in(file) != 0; ++i) usleep(10000);  // it is a second as a rule
  EXPECT_EQ(kibibytes_in(file), 0);
  close(file);
}

// The kernel has no memory for a page table: the page itself may be there.
TEST_F(SharedHeapHugePages, KeepTheirBytesWithoutMemoryForTables) {
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  take_all_but(0);  // they go back one by one
  std::thread([&] {
    ASSERT_TRUE(refuse_advice(MADV_POPULATE_READ, ENOMEM));
    madvise(memory, kSize, MADV_MERGEABLE);  // makes them private
  }).join();
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapHugePages, MoveWithFewFreeOnes) {
  uint8_t* const memory = map_huge();
  take_all_but(3);
  const Mr mr = register_filled(memory, kSize);
}

TEST_F(SharedHeapHugePages, StayWithoutFreeOnes) {
  uint8_t* const memory = map_huge();
  fill(memory, kSize);
  take_all_but(0);
  const Mr mr = register_memory(memory, kSize);
  EXPECT_FALSE(is_shared(memory));
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapHugePages, DontneedGivesZeros) {
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(madvise(memory + kHuge, kHuge, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_zero(memory, kHuge, 2 * kHuge));
  // As the kernel does: the part of a page at the end is not forgotten.
  ASSERT_EQ(madvise(memory + 2 * kHuge, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(memory, 2 * kHuge, kSize));
  EXPECT_TRUE(is_filled(memory, 0, kHuge));
  errno = 0;
  EXPECT_EQ(madvise(memory + kPage, kHuge, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(madvise(memory, kHuge, MADV_FREE), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SharedHeapHugePages, MremapMovesThem) {
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  auto* const target =
      static_cast<uint8_t*>(mmap(nullptr, kSize + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  uint8_t* const aligned = target + (kHuge - reinterpret_cast<uintptr_t>(target) % kHuge) % kHuge;
  ASSERT_EQ(mremap(memory, kSize, kSize, MREMAP_MAYMOVE | MREMAP_FIXED, aligned), aligned) << strerror(errno);
  EXPECT_FALSE(is_shared(aligned));
  EXPECT_TRUE(is_filled(aligned, 0, kSize));
  EXPECT_FALSE(kernel_reads(memory));
  munmap(aligned, kSize);
}

TEST_F(SharedHeapHugePages, Mprotect) {
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  ASSERT_EQ(mprotect(memory + kHuge, kHuge, PROT_NONE), 0);
  EXPECT_FALSE(kernel_reads(memory + kHuge));
  ASSERT_EQ(mprotect(memory + kHuge, kHuge, PROT_READ), 0);
  EXPECT_TRUE(kernel_reads(memory + kHuge));
  EXPECT_FALSE(kernel_writes(memory + kHuge));
  ASSERT_EQ(mprotect(memory + kHuge, kHuge, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

TEST_F(SharedHeapHugePages, AForkGivesEachItsOwn) {
  uint8_t* const memory = map_huge();
  Mr mr = register_filled(memory, kSize);
  expect_fork_keeps(memory, [&] {
    if (!is_filled(memory, 0, kSize)) return 1;
    memory[kHuge] = 99;
    return 0;
  });
  mr.reset();  // it would be in the way: peers reach it by system call
  mr = register_memory(memory, kSize);
  EXPECT_TRUE(is_shared(memory, kSize));
  EXPECT_TRUE(is_filled(memory, 0, kSize));
}

// As with memory that has not been moved: the parent keeps what it has.
TEST_F(SharedHeapHugePages, AForkNeedsNoFreeOnes) {
  uint8_t* const memory = map_huge();
  const Mr mr = register_filled(memory, kSize);
  take_all_but(0);
  expect_fork_keeps(memory, [] { return 0; });
}

TEST_F(SharedHeapHugePages, NoWriteIsLostWhileTheyMove) {
  for (int round = 0; round < 8; ++round) {
    uint8_t* const memory = map_huge(kHuge);
    std::atomic<bool> ends{false};
    std::atomic<uint64_t> count{0};
    std::thread writer([&] {
      auto* const word = reinterpret_cast<volatile uint64_t*>(memory + kHuge - 8);
      for (; !ends; ++count) *word = *word + 1;
    });
    while (count < 1000) std::this_thread::yield();
    const Mr mr = register_memory(memory, kHuge);
    EXPECT_TRUE(is_shared(memory));
    for (const uint64_t then = count; count < then + 1000;) std::this_thread::yield();
    ends = true;
    writer.join();
    EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory + kHuge - 8), count);
    ASSERT_EQ(munmap(memory, kHuge), 0);
  }
}

// KiB of [address, address + size) that smaps counts as `name`.
long kibibytes_of(const std::string& name, const void* address, size_t size) {
  std::ifstream maps("/proc/self/smaps");
  const auto first = reinterpret_cast<uintptr_t>(address);
  long sum = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2)
      inside = first <= begin && end <= first + size;
    else if (inside && line.rfind(name + ":", 0) == 0)
      sum += std::stol(line.substr(name.size() + 1));
  }
  return sum;
}

using SharedHeapTransparentPages = HeapTest;

TEST_F(SharedHeapTransparentPages, StayHuge) {
  constexpr size_t kSize = 4 * kHuge;
  uint8_t* const all = map_pages((kSize + kHuge) / kPage);
  uint8_t* const memory = all + (kHuge - reinterpret_cast<uintptr_t>(all) % kHuge) % kHuge;
  ASSERT_EQ(madvise(memory, kSize, MADV_HUGEPAGE), 0);
  fill(memory, kSize);
  if (kibibytes_of("AnonHugePages", memory, kSize) == 0)
    GTEST_SKIP() << "the machine has no transparent huge pages";
  const Mr mr = register_memory(memory, kSize);
  EXPECT_TRUE(is_shared(memory, kSize));
  // Not the last one: its last page is a mapping of its own.
  EXPECT_GT(kibibytes_of("ShmemPmdMapped", memory, kSize), 0);
  EXPECT_TRUE(is_filled(memory, 0, kSize));
  ASSERT_EQ(madvise(memory + kHuge + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(memory, 0, kHuge + kPage));
  EXPECT_TRUE(is_zero(memory, kHuge + kPage, kHuge + 2 * kPage));
  EXPECT_TRUE(is_filled(memory, kHuge + 2 * kPage, kSize));
}

}  // namespace
}  // namespace verbena::test
