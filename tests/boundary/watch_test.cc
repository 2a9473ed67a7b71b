// SPDX-License-Identifier: BSD-2-Clause
//
// What the provider learns of the program's handling of SIGBUS, and of its shared memory.
#include "boundary/watch.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace verbena::testing {
namespace {

template <typename Function>
Function* seam(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// What the watcher was told last.
struct sigaction told;
int calls = 0, masks = 0, changed = 0;
std::vector<uint64_t> changes, leaves;  // addresses

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
    static const verbena_boundary_watcher kWatcher = {
        take_action, [] { ++masks; }, [](uint64_t address, uint64_t) { changes.push_back(address); },
        [](uint64_t, uint64_t) { ++changed; }, [](uint64_t address, uint64_t) { leaves.push_back(address); }};
    watch_(&kWatcher);
    told = {};
    calls = masks = changed = 0;
    changes.clear();
    leaves.clear();
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

// Pages of a file by which the boundary knows memory that the emulator has moved.
class Heap {
 public:
  static constexpr size_t kSize = 8 * 4096;
  explicit Heap(int kind = MAP_SHARED) : fd_(memfd_create("verbena-heap", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kSize), 0);
    bytes_ = static_cast<uint8_t*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, kind, fd_, 0));
    memset(bytes_, 7, kSize);
    seam<void(uint64_t, uint64_t)>("verbena_boundary_watch_memory")(address(), kSize);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap() { close(fd_); }  // the pages stay: what is noted of them must not be true of other memory
  uint8_t* page(size_t n) const { return bytes_ + n * 4096; }
  uint64_t address(size_t n = 0) const { return reinterpret_cast<uint64_t>(page(n)); }

 private:
  int fd_;
  uint8_t* bytes_;
};

TEST_F(Watched, CallsThatChangeMemoryOfTheHeapAreTold) {
  const Heap heap;
  EXPECT_EQ(mprotect(heap.page(1), 4096, PROT_READ), 0);
  EXPECT_EQ(munmap(heap.page(2), 4096), 0);
  EXPECT_NE(mmap(heap.page(3), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
  EXPECT_EQ(changes, (std::vector<uint64_t>{heap.address(1), heap.address(2), heap.address(3)}));
  EXPECT_EQ(changed, 3);
  EXPECT_EQ(mremap(heap.page(5), 4096, 4096, 0), heap.page(5));
  EXPECT_EQ(leaves, std::vector<uint64_t>{heap.address(5)});
}

TEST_F(Watched, CallsForOtherMemoryAreNot) {
  void* const other = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  seam<void(uint64_t, uint64_t)>("verbena_boundary_watch_memory")(reinterpret_cast<uint64_t>(other), 4096);
  EXPECT_EQ(mprotect(other, 4096, PROT_READ), 0);
  EXPECT_EQ(munmap(other, 4096), 0);
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(changed, 0);
}

TEST_F(Watched, DontneedGivesZerosInMemoryOfTheHeap) {
  for (const int kind : {MAP_SHARED, MAP_PRIVATE}) {
    const Heap heap(kind);
    EXPECT_EQ(madvise(heap.page(2), 2 * 4096, MADV_DONTNEED), 0);
    EXPECT_EQ(*heap.page(1), 7);
    EXPECT_EQ(*heap.page(2), 0);
    EXPECT_EQ(*heap.page(3), 0);
    EXPECT_EQ(*heap.page(4), 7);
    errno = 0;
    EXPECT_EQ(madvise(heap.page(1) + 1, 4096, MADV_DONTNEED), -1);
    EXPECT_EQ(errno, EINVAL);
  }
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
