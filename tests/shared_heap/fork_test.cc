// SPDX-License-Identifier: BSD-2-Clause
//
// fork(2) and its like: a child has the memory as it was, and its own copy.
#include <spawn.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap_fixture.h"

extern char** environ;

namespace verbena::test {
namespace {

using SharedHeapFork = HeapTest;
constexpr size_t kSize = 64 * kPage;

// Two pipes: each end goes on when the other says so.
class Steps {
 public:
  Steps() {
    EXPECT_EQ(pipe(to_child_), 0);
    EXPECT_EQ(pipe(to_parent_), 0);
  }
  ~Steps() {
    for (const int fd : {to_child_[0], to_child_[1], to_parent_[0], to_parent_[1]}) close(fd);
  }
  void go_child() const { EXPECT_EQ(write(to_child_[1], "c", 1), 1); }
  void go_parent() const { EXPECT_EQ(write(to_parent_[1], "p", 1), 1); }
  bool wait_in_child() const { return wait(to_child_[0]); }
  bool wait_in_parent() const { return wait(to_parent_[0]); }

 private:
  static bool wait(int fd) {
    char word;
    return becomes_readable(fd) && read(fd, &word, 1) == 1;
  }
  int to_child_[2], to_parent_[2];
};

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(SharedHeapFork, NeitherSeesWhatTheOtherWritesLater) {
  uint8_t* const memory = map_pages(64);
  const Mr mr = register_filled(memory, kSize);
  const Steps steps;
  const pid_t child = fork();
  if (child == 0) {
    if (!is_filled(memory, 0, kSize)) _exit(1);
    memory[5] = 100;
    memory[9 * kPage] = 101;
    steps.go_parent();
    if (!steps.wait_in_child()) _exit(2);
    if (memory[5] != 100 || memory[9 * kPage] != 101) _exit(3);
    if (memory[kPage] != pattern(kPage) || memory[20 * kPage] != pattern(20 * kPage)) _exit(4);
    if (!is_filled(memory, 21 * kPage, kSize)) _exit(5);
    _exit(0);
  }
  ASSERT_TRUE(steps.wait_in_parent());
  EXPECT_TRUE(is_filled(memory, 0, kSize));
  memory[kPage] = 102;
  memory[20 * kPage] = 103;
  steps.go_child();
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(memory[kPage], 102);
  EXPECT_EQ(memory[20 * kPage], 103);
  EXPECT_EQ(memory[5], pattern(5));
}

TEST_F(SharedHeapFork, MemoryIsSharedAgainWhenItIsRegisteredAgain) {
  uint8_t* const memory = map_pages(8);
  Mr mr = register_filled(memory, 8 * kPage);
  EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_FALSE(is_shared(memory));
  memory[3] = 77;
  mr.reset();
  mr = register_memory(memory, 8 * kPage);
  EXPECT_TRUE(is_shared(memory, 8 * kPage));
  EXPECT_EQ(memory[3], 77);
  memory[3] = pattern(3);
  EXPECT_TRUE(is_filled(memory, 0, 8 * kPage));
  // The child of the second fork has the second state.
  memory[4] = 78;
  EXPECT_EQ(in_child([&] { return memory[4] == 78 && memory[5] == pattern(5) ? 0 : 1; }), 0);
}

TEST_F(SharedHeapFork, AChildOfAChildHasItsOwnCopy) {
  uint8_t* const memory = map_pages(2);
  const Mr mr = register_filled(memory, 2 * kPage);
  EXPECT_EQ(in_child([&] {
              memory[0] = 1;
              const int inner = in_child([&] {
                memory[1] = 2;
                return memory[0];
              });
              return inner == 1 && memory[1] == pattern(1) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_filled(memory, 0, 2 * kPage));
}

// Whatever another thread writes during the fork, a later value does not come before an earlier one.
TEST_F(SharedHeapFork, AChildHasOneStateOfMemoryThatAnotherThreadWrites) {
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; ++round) {
    uint8_t* const memory = map_pages(64);
    const Mr mr = register_filled(memory, kSize);
    auto* const first = reinterpret_cast<std::atomic<uint64_t>*>(memory);
    auto* const last = reinterpret_cast<std::atomic<uint64_t>*>(memory + 63 * kPage);
    first->store(0);
    last->store(0);
    std::atomic<bool> ends{false}, begun{false};
    std::thread writer([&] {
      for (uint64_t i = 1; !ends; ++i, begun = true) {
        first->store(i);
        last->store(i);
      }
    });
    while (!begun) sched_yield();
    EXPECT_EQ(in_child([&] {
                const uint64_t b = *last, a = *first;
                return a == b || a == b + 1 ? 0 : 1;
              }),
              0);
    ends = true;
    writer.join();
    EXPECT_EQ(first->load(), last->load());
    EXPECT_EQ(munmap(memory, kSize), 0);
  }
}

TEST_F(SharedHeapFork, VforkAndSpawnAreAsBefore) {
  uint8_t* const memory = map_pages(2);
  const Mr mr = register_filled(memory, 2 * kPage);
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  EXPECT_EQ(status_of(child), 0);
  char program[] = "/bin/true";
  char* arguments[] = {program, nullptr};
  pid_t spawned = 0;
  ASSERT_EQ(posix_spawn(&spawned, program, nullptr, nullptr, arguments, environ), 0);
  EXPECT_EQ(status_of(spawned), 0);
  EXPECT_EQ(system("true"), 0);
  EXPECT_TRUE(is_shared(memory, 2 * kPage));
  EXPECT_TRUE(is_filled(memory, 0, 2 * kPage));
}

TEST_F(SharedHeapFork, DontforkKeepsMemoryFromTheChild) {
  uint8_t* const memory = map_pages(4);
  const Mr mr = register_filled(memory, 4 * kPage);
  ASSERT_EQ(madvise(memory + kPage, kPage, MADV_DONTFORK), 0);
  EXPECT_EQ(in_child([&] { return memory[0] == pattern(0) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return static_cast<int>(*const_cast<volatile uint8_t*>(memory + kPage)); }),
            128 + SIGSEGV);
  EXPECT_TRUE(is_shared(memory + kPage));
  EXPECT_TRUE(is_filled(memory, 0, 4 * kPage));
}

TEST_F(SharedHeapFork, DontforkBeforeRegistrationHoldsAsWell) {
  uint8_t* const memory = map_pages(4);
  ASSERT_EQ(madvise(memory, 4 * kPage, MADV_DONTFORK), 0);
  const Mr mr = register_filled(memory, 4 * kPage);
  EXPECT_EQ(in_child([&] { return static_cast<int>(*const_cast<volatile uint8_t*>(memory)); }),
            128 + SIGSEGV);
  EXPECT_TRUE(is_shared(memory, 4 * kPage));
}

TEST_F(SharedHeapFork, WipeonforkGivesTheChildZeros) {
  uint8_t* const memory = map_pages(4);
  const Mr mr = register_filled(memory, 4 * kPage);
  ASSERT_EQ(madvise(memory + kPage, kPage, MADV_WIPEONFORK), 0);
  EXPECT_TRUE(is_filled(memory, 0, 4 * kPage));
  EXPECT_EQ(in_child([&] {
              return is_zero(memory, kPage, 2 * kPage) && is_filled(memory, 0, kPage) &&
                             is_filled(memory, 2 * kPage, 4 * kPage)
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_TRUE(is_filled(memory, 0, 4 * kPage));
}

TEST_F(SharedHeapFork, TheDescriptorOfTheHeapMayBeClosed) {
  uint8_t* const memory = map_pages(2);
  const Mr mr = register_filled(memory, 2 * kPage);
  for (int fd = 3; fd < 256; ++fd) {
    char name[32], target[64] = "";
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, target, sizeof target - 1) > 0 && strstr(target, "verbena-heap") != nullptr) close(fd);
  }
  EXPECT_EQ(in_child([&] {
              memory[0] = 99;
              return is_filled(memory, 1, 2 * kPage) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(is_filled(memory, 0, 2 * kPage));
}

// Three times a copy-on-write fork at most: no byte is copied. Each is taken at its best: what else runs on
// the machine makes single forks slower, but not all of many that are taken in turn.
TEST_F(SharedHeapFork, TakesNoLongerThanThreeOrdinaryForks) {
  using Clock = std::chrono::steady_clock;
  // 16 MiB: a fork takes less than a millisecond, and some of many come between two turns of other threads.
  constexpr size_t kPages = 4 * 1024;
  constexpr int kLeastPairs = 16;
  const auto fork_time = [] {
    const auto begin = Clock::now();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    const auto time = Clock::now() - begin;
    EXPECT_EQ(status_of(child), 0);
    return time;
  };
  uint8_t* const memory = map_pages(kPages);
  Clock::duration ordinary = Clock::duration::max(), ours = ordinary;
  int pairs = 0;
  const auto take_pair = [&] {
    memset(memory, ++pairs,
           kPages * kPage);  // the pages that the fork before has made common are its own again
    ordinary = std::min(ordinary, fork_time());
    memset(memory, pairs, kPages * kPage);
    const Mr mr = register_memory(memory, kPages * kPage);
    ASSERT_TRUE(is_shared(memory));
    ours = std::min(ours, fork_time());
    ASSERT_FALSE(is_shared(memory));
  };
  const auto deadline = Clock::now() + std::chrono::seconds(40);
  while (!HasFatalFailure() && (pairs < kLeastPairs || (ours > 3 * ordinary && Clock::now() < deadline)))
    take_pair();
  RecordProperty("pairs", pairs);
  RecordProperty("ordinary_us", static_cast<int>(ordinary / std::chrono::microseconds(1)));
  RecordProperty("ours_us", static_cast<int>(ours / std::chrono::microseconds(1)));
  EXPECT_LE(ours, 3 * ordinary);
}

}  // namespace
}  // namespace verbena::test
