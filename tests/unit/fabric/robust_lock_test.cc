// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/robust_lock.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

class RobustLockTest : public ::testing::Test {
 protected:
  RobustLockTest() {
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) word_ = new (memory) std::atomic<uint32_t>{0};
  }
  ~RobustLockTest() override { munmap(word_, 4096); }
  std::atomic<uint32_t>& word() { return *word_; }
  // What another thread gets.
  int elsewhere() {
    int result = 0;
    std::thread([&] {
      RobustLock lock;
      result = lock.try_lock(word());
    }).join();
    return result;
  }

 private:
  std::atomic<uint32_t>* word_ = nullptr;
};

TEST_F(RobustLockTest, IsHeldByOneThread) {
  {
    RobustLock lock;
    ASSERT_EQ(lock.try_lock(word()), 0);
    EXPECT_EQ(word().load(), static_cast<uint32_t>(gettid()));
    EXPECT_EQ(elsewhere(), EBUSY);
    lock.unlock();
    EXPECT_EQ(elsewhere(), 0);
    ASSERT_EQ(lock.try_lock(word()), 0);
  }
  EXPECT_EQ(elsewhere(), 0);
}

TEST_F(RobustLockTest, IsTakenOverFromAKilledProcess) {
  Child holder([&](const Child& self) {
    RobustLock lock;
    if (lock.try_lock(word()) == 0) self.tell('h');
    self.hear();
    return 0;
  });
  ASSERT_EQ(holder.answer(), 'h');
  EXPECT_EQ(elsewhere(), EBUSY);
  holder.kill_now();
  EXPECT_EQ(elsewhere(), EOWNERDEAD);
  EXPECT_EQ(elsewhere(), 0);
}

TEST_F(RobustLockTest, IsTakenOverFromAProcessThatHasExecuted) {
  const Child holder([&](const Child&) {
    RobustLock lock;
    if (lock.try_lock(word()) == 0) execlp("sleep", "sleep", "50", nullptr);
    return 1;
  });
  EXPECT_TRUE(eventually([&] { return (word().load() & kOwnerDied) != 0; }));
  EXPECT_EQ(elsewhere(), EOWNERDEAD);
}

TEST_F(RobustLockTest, IsTakenOverFromAHolderThatTookItOver) {
  for (int i = 0; i < 3; ++i) {
    Child holder([&](const Child& self) {
      RobustLock lock;
      self.tell(static_cast<char>('0' + lock.try_lock(word())));
      self.hear();
      return 0;
    });
    ASSERT_EQ(holder.answer(), i == 0 ? '0' : static_cast<char>('0' + EOWNERDEAD));
    holder.kill_now();
  }
}

TEST_F(RobustLockTest, DoesNotUnlockAWordThatIsDamaged) {
  RobustLock lock;
  ASSERT_EQ(lock.try_lock(word()), 0);
  word() = 77;
  lock.unlock();
  EXPECT_EQ(word().load(), 77u);
}

TEST_F(RobustLockTest, LeavesTheLocksOfLibcAlone) {
  {
    RobustLock lock;
    ASSERT_EQ(lock.try_lock(word()), 0);
  }
  pthread_mutexattr_t robust;
  pthread_mutexattr_init(&robust);
  pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  pthread_mutex_init(&mutex, &robust);
  std::thread([&] {
    { RobustLock lock; }
    pthread_mutex_lock(&mutex);
  }).join();
  EXPECT_EQ(pthread_mutex_lock(&mutex), EOWNERDEAD);
  pthread_mutex_consistent(&mutex);
  pthread_mutex_unlock(&mutex);
  pthread_mutex_destroy(&mutex);
  pthread_mutexattr_destroy(&robust);
}

}  // namespace
}  // namespace verbena
