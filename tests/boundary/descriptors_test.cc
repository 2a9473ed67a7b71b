// SPDX-License-Identifier: BSD-2-Clause
//
// The table alone, without hooks, so that the sanitizers can check it.
#include "boundary/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "boundary/placeholder_file.h"

namespace verbena {
namespace {

ssize_t count(void* owner, const void*, size_t length) {
  static_cast<std::atomic<int>*>(owner)->fetch_add(1);
  return static_cast<ssize_t>(length);
}

int open_placeholder() { return open(kPlaceholder, O_RDWR | O_CLOEXEC); }

class Descriptors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { prepare_descriptors(); }

  std::atomic<int> counter_{0};
  verbena_boundary_handler handler_{count, &counter_};
  verbena_boundary_handler found_{};
};

TEST_F(Descriptors, AdoptedIsNotYetClaimed) {
  const int fd = open_placeholder();
  adopt_descriptor(fd);
  EXPECT_TRUE(may_be_device(fd));
  EXPECT_FALSE(find_handler(fd, &found_));
  close(fd);
}

TEST_F(Descriptors, ClaimedIsFound) {
  const int fd = open_placeholder();
  adopt_descriptor(fd);
  ASSERT_EQ(claim_descriptor(fd, handler_), 0);
  ASSERT_TRUE(find_handler(fd, &found_));
  EXPECT_EQ(found_.owner, &counter_);
  close(fd);
}

TEST_F(Descriptors, NotAdoptedIsRefused) {
  const int fd = open_placeholder();
  EXPECT_EQ(claim_descriptor(fd, handler_), EBADF);
  close(fd);
}

TEST_F(Descriptors, AMissIsForgotten) {
  const int fd = open_placeholder();
  adopt_descriptor(fd);
  close(fd);
  EXPECT_FALSE(find_handler(fd, &found_));
  EXPECT_FALSE(may_be_device(fd));
}

TEST_F(Descriptors, ErrnoStays) {
  const int fd = open_placeholder();
  errno = E2BIG;
  adopt_descriptor(fd);
  close(fd);
  find_handler(fd, &found_);
  EXPECT_EQ(errno, E2BIG);
}

TEST_F(Descriptors, ForkedChildStartsEmpty) {
  const int fd = open_placeholder();
  adopt_descriptor(fd);
  const pid_t child = fork();
  if (child == 0) _exit(may_be_device(fd) ? 1 : 0);
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(fd);
}

TEST_F(Descriptors, NegativeNumbersAreNobodys) {
  adopt_descriptor(-1);
  EXPECT_FALSE(may_be_device(-1));
}

class Pipes : public Descriptors {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(ends_), 0);
    ASSERT_TRUE(adopt_pipe(ends_[0], handler_));
  }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  int ends_[2];
};

TEST_F(Pipes, StandForADeviceFileFromTheStart) {
  ASSERT_TRUE(find_handler(ends_[0], &found_));
  EXPECT_EQ(found_.owner, &counter_);
  EXPECT_TRUE(is_pipe_of_device(ends_[0]));
}

TEST_F(Pipes, AreKnownByTheirCopiesToo) {
  const int copy = dup(ends_[0]);
  inherit_descriptor(ends_[0], copy);
  EXPECT_TRUE(find_handler(copy, &found_));
  EXPECT_TRUE(is_pipe_of_device(copy));
  close(copy);
}

TEST_F(Pipes, AreForgottenWhenSomethingElseTakesTheNumber) {
  const int other = open_placeholder();
  dup2(other, ends_[0]);
  EXPECT_FALSE(is_pipe_of_device(ends_[0]));
  EXPECT_FALSE(find_handler(ends_[0], &found_));
  close(other);
}

TEST_F(Pipes, AnotherPipeUnderTheNumberIsNotIt) {
  int others[2];
  ASSERT_EQ(pipe(others), 0);
  dup2(others[0], ends_[0]);
  EXPECT_FALSE(find_handler(ends_[0], &found_));
  for (const int end : others) close(end);
}

TEST_F(Pipes, MayBeSignalDrivenByAnotherProcess) {
  fcntl(ends_[0], F_SETOWN, getppid());
  fcntl(ends_[0], F_SETSIG, 0);
  EXPECT_TRUE(find_handler(ends_[0], &found_));
}

TEST_F(Pipes, OnlyPipesAreAdopted) {
  const int fd = open_placeholder();
  EXPECT_FALSE(adopt_pipe(fd, handler_));
  EXPECT_FALSE(find_handler(fd, &found_));
  close(fd);
}

TEST_F(Descriptors, ThreadsDoNotDisturbEachOther) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::atomic<int> own{0};
      for (int round = 0; round < 1500; ++round) {  // together more than the table has entries
        const int fd = open_placeholder();
        adopt_descriptor(fd);
        verbena_boundary_handler found{};
        if (claim_descriptor(fd, {count, &own}) != 0 || !find_handler(fd, &found) || found.owner != &own)
          ++wrong;
        release_descriptor(fd);
        close(fd);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

// The table is nearly full, so it is swept every few dozen descriptors: an entry made during a sweep outlives
// it.
TEST_F(Descriptors, SweepSparesWhatIsMadeMeanwhile) {
  constexpr int kKept = 4064;  // of 4,096
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = kKept + 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> kept;
  for (int i = 0; i < kKept; ++i) {
    kept.push_back(open_placeholder());
    adopt_descriptor(kept.back());
    EXPECT_EQ(claim_descriptor(kept.back(), handler_), 0) << i;
  }

  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, copies = i == 0] {
      std::atomic<int> own{0};
      for (int round = 0; round < 300; ++round) {
        int fd = open_placeholder();
        adopt_descriptor(fd);
        verbena_boundary_handler found{};
        if (claim_descriptor(fd, {count, &own}) != 0) ++wrong;
        if (copies) {
          const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
          inherit_descriptor(fd, copy);
          close(fd);
          fd = copy;
        }
        if (!find_handler(fd, &found) || found.owner != &own) ++wrong;
        release_descriptor(fd);
        close(fd);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);

  for (const int fd : kept) {
    EXPECT_TRUE(find_handler(fd, &found_)) << fd;
    close(fd);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace verbena
