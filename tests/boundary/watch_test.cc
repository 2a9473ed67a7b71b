// SPDX-License-Identifier: BSD-2-Clause
//
// What the provider learns of the program's handling of SIGBUS, and of its shared memory.
#include "boundary/watch.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace verbena::testing {
namespace {

template <typename Function>
Function* seam(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// What the watcher was told last.
struct sigaction told;
int calls = 0, masks = 0;

int take_action(const struct sigaction* action, struct sigaction* former) {
  ++calls;
  if (former != nullptr) *former = told;
  if (action != nullptr) told = *action;
  return 0;
}

class Watched : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(watch_, nullptr);
    static const verbena_boundary_watcher kWatcher = {take_action, [] { ++masks; }};
    watch_(&kWatcher);
    told = {};
    calls = masks = 0;
  }
  void TearDown() override { watch_(nullptr); }

  verbena_boundary_watch_fn watch_ = seam<void(const verbena_boundary_watcher*)>("verbena_boundary_watch");
};

void some_handler(int) {}

TEST_F(Watched, ActionsForSigbusGoToTheWatcher) {
  struct sigaction action {
  }, former{};
  action.sa_handler = some_handler;
  EXPECT_EQ(sigaction(SIGBUS, &action, nullptr), 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(told.sa_handler, some_handler);
  EXPECT_EQ(sigaction(SIGBUS, nullptr, &former), 0);
  EXPECT_EQ(former.sa_handler, some_handler);
  EXPECT_EQ(signal(SIGBUS, SIG_IGN), some_handler);
  EXPECT_EQ(told.sa_handler, SIG_IGN);
  EXPECT_EQ(told.sa_flags & SA_RESTART, SA_RESTART);
  EXPECT_EQ(calls, 3);
}

TEST_F(Watched, OtherSignalsDoNot) {
  struct sigaction former {};
  EXPECT_EQ(sigaction(SIGUSR1, nullptr, &former), 0);
  EXPECT_EQ(signal(SIGUSR1, some_handler), SIG_DFL);
  EXPECT_EQ(signal(SIGUSR1, SIG_DFL), some_handler);
  EXPECT_EQ(calls, 0);
}

TEST_F(Watched, ChangesOfTheMaskAreTold) {
  sigset_t mask;
  sigemptyset(&mask);
  EXPECT_EQ(pthread_sigmask(SIG_BLOCK, &mask, nullptr), 0);
  EXPECT_EQ(sigprocmask(SIG_BLOCK, &mask, nullptr), 0);
  EXPECT_EQ(masks, 2);
}

TEST(SharedMemory, OfFilesIsNoted) {
  const auto was_shared = seam<int(uint64_t)>("verbena_boundary_was_shared");
  ASSERT_NE(was_shared, nullptr);
  const auto map = [](int flags, int fd) {
    void* const memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, flags, fd, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return reinterpret_cast<uint64_t>(memory);
  };
  const int file = memfd_create("noted", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 8192), 0);
  const uint64_t shared = map(MAP_SHARED, file), own = map(MAP_PRIVATE, file);
  const uint64_t nameless = map(MAP_SHARED | MAP_ANONYMOUS, -1);
  EXPECT_EQ(was_shared(shared), 1);
  EXPECT_EQ(was_shared(shared + 8191), 1);
  EXPECT_EQ(was_shared(own), 0);
  EXPECT_EQ(was_shared(nameless), 0);
  for (const uint64_t memory : {shared, own, nameless}) munmap(reinterpret_cast<void*>(memory), 8192);
  close(file);
}

}  // namespace
}  // namespace verbena::testing
