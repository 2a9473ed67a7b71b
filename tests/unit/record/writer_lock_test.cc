// SPDX-License-Identifier: BSD-2-Clause
//
// The lock that one thread owns: one at a time has it, also of those that take it away.
#include "record/writer_lock.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace verbena::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the lock protects. Two numbers that are the same whenever nobody has it.
struct Guarded {
  WriterLock lock;
  uint64_t one = 0, other = 0;

  // Whether they were the same.
  bool count() {
    const WriterLock::Hold hold = lock.lock();
    const bool same = one == other;
    ++one;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++other;
    lock.unlock(hold);
    return same;
  }
  void give_away() {
    const WriterLock::Hold hold = lock.lock();
    lock.unlock_for_new_owner(hold);
  }
};

TEST(WriterLock, IsTakenAwayFromItsOwner) {
  const bool can_be_owned = WriterLock::can_be_owned();
  for (int round = 0; round < 20; ++round) {
    Guarded guarded;
    if (can_be_owned) guarded.give_away();
    std::atomic<uint64_t> owned{0};
    std::atomic<bool> is_over{false}, same{true};
    std::thread owner([&] {
      uint64_t counted = 0;
      for (; !is_over.load(std::memory_order_relaxed); owned.store(++counted))
        if (!guarded.count()) same = false;
    });
    const auto end = steady_clock::now() + milliseconds(20000);
    while (owned.load() < 1000 && steady_clock::now() < end) std::this_thread::yield();
    uint64_t here = 0;
    for (; here < 1000; ++here)
      if (!guarded.count()) same = false;
    is_over = true;
    owner.join();
    EXPECT_TRUE(same);
    EXPECT_EQ(guarded.one, owned.load() + here);
    EXPECT_EQ(guarded.other, guarded.one);
  }
}

// Threads that count until they are stopped.
class CountingThreads {
 public:
  explicit CountingThreads(Guarded* guarded) {
    for (uint64_t& count : counted_)
      threads_.emplace_back([this, guarded, &count] {
        uint64_t own = 0;
        for (; !is_over_.load(std::memory_order_relaxed); ++own)
          if (!guarded->count()) same_ = false;
        count = own;
      });
  }
  ~CountingThreads() { stop(); }
  // How often they have counted.
  uint64_t stop() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return std::accumulate(counted_.begin(), counted_.end(), uint64_t{0});
  }
  bool same() const { return same_; }  // were the two numbers the same, each time?

 private:
  std::atomic<bool> is_over_{false}, same_{true};
  std::array<uint64_t, 3> counted_{};
  std::vector<std::thread> threads_;
};

// Many threads, and a new owner again and again; more often than there can be one.
TEST(WriterLock, IsGivenAwayWhileOthersWantIt) {
  WriterLock::can_be_owned();
  Guarded guarded;
  CountingThreads others(&guarded);
  for (int i = 0; i < 40; ++i) {
    std::this_thread::sleep_for(milliseconds(2));
    guarded.give_away();
  }
  const uint64_t sum = others.stop();
  EXPECT_TRUE(others.same());
  EXPECT_EQ(guarded.one, sum);
  EXPECT_EQ(guarded.other, sum);
}

// As above, but the owner itself gives it away at first.
TEST(WriterLock, IsGivenAwayByItsOwner) {
  WriterLock::can_be_owned();
  for (int round = 0; round < 20; ++round) {
    Guarded guarded;
    guarded.give_away();
    ASSERT_TRUE(guarded.count());  // this thread owns it
    CountingThreads others(&guarded);
    uint64_t sum = 1;
    for (; sum < 5000; ++sum) {
      if (sum % 300 == 0) guarded.give_away();
      EXPECT_TRUE(guarded.count());
    }
    sum += others.stop();
    EXPECT_TRUE(others.same());
    EXPECT_EQ(guarded.one, sum);
    EXPECT_EQ(guarded.other, sum);
  }
}

TEST(WriterLock, IsFreeInAChild) {
  Guarded guarded;
  if (WriterLock::can_be_owned()) guarded.give_away();
  guarded.count();
  static_cast<void>(guarded.lock.lock());
  guarded.lock.forget();
  EXPECT_TRUE(guarded.count());
}

}  // namespace
}  // namespace verbena::record
