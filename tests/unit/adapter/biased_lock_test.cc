// SPDX-License-Identifier: BSD-2-Clause
//
// A lock that is biased towards a thread: the thread that has the bias and those that revoke it exclude each
// other.
#include "adapter/locks.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "common/refuse_process_vm.h"
#include "unit/common/child.h"

namespace verbena {
namespace {

// Two numbers that differ unless threads exclude each other. Their sum is not kept in one instruction.
struct TwoNumbers {
  BiasedLock lock;
  uint64_t first = 0, second = 0;
  bool same = true;

  void count() {
    std::lock_guard guard(lock);
    same = same && first == second;
    ++first;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // two stores, in this order
    ++second;
  }
  void count(uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) count();
  }
};

constexpr uint64_t kBiased = 1000;  // after so many the thread has the bias

class Biased : public ::testing::Test {
 protected:
  Biased() { allow_biased_locks(); }
  TwoNumbers numbers_;
};

TEST_F(Biased, IsTakenByOneThreadAgainAndAgain) {
  numbers_.count(100'000);
  EXPECT_TRUE(numbers_.same);
  EXPECT_EQ(numbers_.second, 100'000u);
}

TEST_F(Biased, GoesOverToAnotherThread) {
  numbers_.count(kBiased);
  std::thread([&] { numbers_.count(kBiased); }).join();
  numbers_.count(kBiased);
  EXPECT_EQ(numbers_.second, 3 * kBiased);
}

TEST_F(Biased, OfAThreadThatHasEndedIsTakenByTheNextOnes) {
  for (int i = 0; i < 20; ++i) std::thread([&] { numbers_.count(kBiased); }).join();
  EXPECT_EQ(numbers_.second, 20 * kBiased);
}

// The thread with the bias is at work all the time; each revocation meets it somewhere between two
// instructions. Every revocation makes the next bias dearer: each lock is revoked a few times only.
TEST_F(Biased, IsRevokedWhileItsThreadTakesIt) {
  constexpr int kLocks = 100;
  constexpr uint64_t kRevocations = 6;
  for (int i = 0; i < kLocks && !HasFailure(); ++i) {
    TwoNumbers numbers;
    std::atomic<bool> over{false};
    std::atomic<uint64_t> taken{0};
    std::thread owner([&] {
      while (!over.load(std::memory_order_relaxed)) {
        numbers.count();
        taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
    });
    for (uint64_t revocation = 0; revocation < kRevocations; ++revocation) {
      const uint64_t biased = taken.load(std::memory_order_relaxed) + (uint64_t{128} << revocation);
      while (taken.load(std::memory_order_relaxed) < biased) sched_yield();
      numbers.count();
    }
    over.store(true);
    owner.join();
    EXPECT_TRUE(numbers.same);
    EXPECT_EQ(numbers.second, kRevocations + taken.load());
  }
}

TEST_F(Biased, ExcludesManyThreads) {
  constexpr int kThreads = 4;
  constexpr uint64_t kTimes = 100'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { numbers_.count(kTimes); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(numbers_.same);
  EXPECT_EQ(numbers_.second, kThreads * kTimes);
}

// As a sandbox does that is set up in a running program. Of the calling thread, which revokes the bias.
bool refuse_membarrier() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return test::filter_calls(rules, std::size(rules));
}

TEST_F(Biased, IsRevokedWhereMembarrierIsRefusedMeanwhile) {
  Child child([&](const Child&) {
    std::atomic<bool> over{false};
    uint64_t taken = 0;
    std::atomic<bool> biased{false};
    std::thread owner([&] {
      for (; !over.load(std::memory_order_relaxed); ++taken) {
        numbers_.count();
        if (taken == kBiased) biased.store(true);
      }
    });
    while (!biased.load()) sched_yield();
    const bool refused = refuse_membarrier();
    numbers_.count(100);
    over.store(true);
    owner.join();
    if (!refused) return 77;
    return numbers_.same && numbers_.second == taken + 100 ? 0 : 1;
  });
  const int status = child.finish();
  if (status == 77) GTEST_SKIP() << "this process may not set up a filter of system calls";
  EXPECT_EQ(status, 0);
}

TEST_F(Biased, LeavesErrnoAlone) {
  numbers_.count(kBiased);
  std::thread([&] {
    errno = 42;
    numbers_.count();
    EXPECT_EQ(errno, 42);
  }).join();
}

}  // namespace
}  // namespace verbena
