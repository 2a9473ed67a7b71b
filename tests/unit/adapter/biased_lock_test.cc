// SPDX-License-Identifier: BSD-2-Clause
//
// A lock that is biased towards a thread: the thread that has the bias and those that revoke it exclude each
// other.
#include "adapter/locks.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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

#if !defined(__SANITIZE_THREAD__)  // no lock is biased there, and signals wait for a call of libc
std::atomic<bool> is_stopped{false}, may_go_on{false};

void stop_here(int) {
  is_stopped.store(true);
  while (!may_go_on.load()) sched_yield();
}

template <typename Condition>
bool comes_within(std::chrono::milliseconds time, Condition&& condition) {
  for (const auto end = std::chrono::steady_clock::now() + time; !condition(); sched_yield())
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

// A thread that has the bias is stopped at any instruction, by a signal. Where that is outside of the lock,
// the bias goes over to another thread, which is in the lock when the former one goes on.
TEST_F(Biased, KeepsAThreadOutThatLostTheBiasAtAnyInstruction) {
  struct sigaction before {
  }, stop{};
  stop.sa_handler = stop_here;
  ASSERT_EQ(sigaction(SIGUSR1, &stop, &before), 0);
  int stopped_outside = 0;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    BiasedLock lock;
    std::atomic<bool> over{false}, other_is_inside{false}, met{false};
    std::atomic<uint64_t> taken{0};
    is_stopped.store(false);
    may_go_on.store(false);
    std::thread owner([&] {
      for (uint64_t times = 1; !over.load(std::memory_order_relaxed); ++times) {
        std::lock_guard guard(lock);
        if (other_is_inside.load(std::memory_order_relaxed)) met.store(true);
        taken.store(times, std::memory_order_relaxed);
      }
    });
    while (taken.load() < kBiased) sched_yield();
    ASSERT_EQ(pthread_kill(owner.native_handle(), SIGUSR1), 0);
    while (!is_stopped.load()) sched_yield();
    std::thread other([&] {
      for (uint64_t times = 0; times < kBiased; ++times) {
        std::lock_guard guard(lock);
      }
      std::lock_guard guard(lock);
      other_is_inside.store(true);
      comes_within(std::chrono::milliseconds(2), [&] { return met.load(); });
      other_is_inside.store(false);
    });
    // Otherwise the owner was stopped with the lock.
    stopped_outside += comes_within(std::chrono::milliseconds(5), [&] { return other_is_inside.load(); });
    may_go_on.store(true);
    other.join();
    over.store(true);
    owner.join();
    EXPECT_FALSE(met.load());
  }
  EXPECT_GT(stopped_outside, 0);
  sigaction(SIGUSR1, &before, nullptr);
}
#endif

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
