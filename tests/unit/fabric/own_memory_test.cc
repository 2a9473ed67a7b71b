// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/own_memory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/refuse_calls.h"

namespace verbena {
namespace {

constexpr size_t kOwnPage = 4096;

// OwnPages that can be written, that can be read, that may not be accessed, and that are not mapped.
class OwnPages {
 public:
  OwnPages() {
    void* memory = mmap(nullptr, 4 * kOwnPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    begin_ = static_cast<char*>(memory);
    mprotect(at(1), kOwnPage, PROT_READ);
    mprotect(at(2), kOwnPage, PROT_NONE);
    munmap(at(3), kOwnPage);
  }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;
  ~OwnPages() { munmap(begin_, 3 * kOwnPage); }
  char* at(size_t page) const { return begin_ + page * kOwnPage; }

 private:
  char* begin_;
};

// What is_reachable() returns for the four pages, for reading and for writing: eight letters.
std::string verdicts(const OwnPages& pages) {
  std::string said;
  for (size_t page = 0; page < 4; ++page)
    for (const bool writable : {false, true})
      said += is_reachable(reinterpret_cast<uintptr_t>(pages.at(page)) + 5, writable) ? 'y' : 'n';
  return said;
}

bool refuse_reaching(int error, bool madvise_too) {
  if (madvise_too && !test::refuse_calls({{SYS_madvise, EINVAL}})) return false;  // as a kernel before 5.14
  return test::refuse_calls({{SYS_process_vm_readv, error}, {SYS_process_vm_writev, error}});
}

// The same for a child that may not use process_vm_*(2).
std::string verdicts_where_refused(const OwnPages& pages, int error, bool madvise_too) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string said = refuse_reaching(error, madvise_too) ? verdicts(pages) : "no filter";
    _exit(write(pipe_ends[1], said.data(), said.size()) < 0);
  }
  close(pipe_ends[1]);
  char said[16];
  const ssize_t got = read(pipe_ends[0], said, sizeof said);
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return std::string(said, got > 0 ? static_cast<size_t>(got) : 0);
}

constexpr const char* kVerdicts = "yyynnnnn";

TEST(OwnMemory, IsReachableWhereItIsMappedWithTheRight) { EXPECT_EQ(verdicts(OwnPages()), kVerdicts); }

TEST(OwnMemory, IsJudgedTheSameWithoutProcessVm) {
  const OwnPages pages;
  for (const uint32_t error : {EPERM, ENOSYS})
    EXPECT_EQ(verdicts_where_refused(pages, error, false), kVerdicts);
}

TEST(OwnMemory, IsJudgedTheSameWithoutProcessVmOnAnOldKernel) {
  const OwnPages pages;
  strcpy(pages.at(0), "as it was");
  EXPECT_EQ(verdicts_where_refused(pages, EPERM, true), kVerdicts);
  EXPECT_STREQ(pages.at(0), "as it was");
}

TEST(OwnMemory, IsCopiedByAPipe) {
  std::vector<char> from(3 << 20), to(from.size());
  std::iota(from.begin(), from.end(), char{1});
  for (const size_t size : {size_t{0}, size_t{1}, size_t{8}, kOwnPage + 1, size_t{65537}, from.size() - 3}) {
    std::fill(to.begin(), to.end(), 0);
    ASSERT_EQ(copy_by_pipe(to.data() + 1, from.data() + 2, size), 0);
    EXPECT_EQ(memcmp(to.data() + 1, from.data() + 2, size), 0) << size;
    EXPECT_EQ(to[size + 1], 0) << size;
  }
}

TEST(OwnMemory, IsNotCopiedWhereItMayNotBe) {
  const OwnPages pages;
  char here[2 * kOwnPage] = {};
  EXPECT_EQ(copy_by_pipe(here, pages.at(1), kOwnPage), 0);
  EXPECT_EQ(copy_by_pipe(here, pages.at(1), kOwnPage + 1), EFAULT);
  EXPECT_EQ(copy_by_pipe(here, pages.at(3), 1), EFAULT);
  EXPECT_EQ(copy_by_pipe(pages.at(0), here, kOwnPage), 0);
  EXPECT_EQ(copy_by_pipe(pages.at(0), here, kOwnPage + 1), EFAULT);
  EXPECT_EQ(copy_by_pipe(pages.at(1), here, 1), EFAULT);
}

}  // namespace
}  // namespace verbena
