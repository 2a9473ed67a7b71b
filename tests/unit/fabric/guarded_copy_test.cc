// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/guarded_copy.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "sigbus.h"

namespace verbena {
namespace {

// Two pages of a file, of which the second is gone.
class HalfAFile {
 public:
  HalfAFile() : fd_(memfd_create("half", MFD_CLOEXEC)) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = 2 * page;
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(page)), 0);
    void* const bytes = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(bytes, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(bytes);
  }
  HalfAFile(const HalfAFile&) = delete;
  HalfAFile& operator=(const HalfAFile&) = delete;
  ~HalfAFile() {
    munmap(bytes_, size_);
    close(fd_);
  }
  std::byte* there() const { return bytes_; }
  std::byte* gone() const { return bytes_ + size_ / 2; }

 private:
  int fd_;
  size_t size_;
  std::byte* bytes_;
};

TEST(GuardedCopy, CopiesEverySizeToEveryPlace) {
  std::vector<std::byte> from(400), to(400), wanted(400);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 5 + 1);
  for (size_t size = 1; size <= 200; ++size) {
    for (size_t at = 0; at < 16; ++at) {
      std::fill(to.begin(), to.end(), std::byte{0});
      wanted = to;
      std::memcpy(wanted.data() + at, from.data() + size % 11, size);
      ASSERT_TRUE(copy_guarded(to.data() + at, from.data() + size % 11, size));
      ASSERT_EQ(to, wanted) << size << " bytes at " << at;
    }
  }
}

TEST(GuardedCopy, APageThatIsGoneEndsTheCopy) {
  ASSERT_TRUE(install_copy_guard());
  ASSERT_TRUE(may_copy_guarded());
  const HalfAFile file;
  std::vector<std::byte> own(8192);
  uint64_t before = 0;
  for (int again = 0; again < 3; ++again) {
    EXPECT_FALSE(copy_guarded(file.gone(), own.data(), 8));
    EXPECT_FALSE(copy_guarded(file.there(), own.data(), own.size()));
    EXPECT_FALSE(copy_guarded(own.data(), file.there(), own.size()));
    EXPECT_FALSE(fetch_add_guarded(reinterpret_cast<uint64_t*>(file.gone()), 1, &before));
    EXPECT_FALSE(compare_and_swap_guarded(reinterpret_cast<uint64_t*>(file.gone()), 0, 1, &before));
    EXPECT_TRUE(copy_guarded(file.there(), own.data(), 4096));
  }
}

TEST(GuardedCopy, AtomicsReturnTheFormerValue) {
  alignas(8) uint64_t word = 7;
  uint64_t before = 0;
  EXPECT_TRUE(fetch_add_guarded(&word, 3, &before));
  EXPECT_EQ(before, 7u);
  EXPECT_TRUE(compare_and_swap_guarded(&word, 9, 1, &before));
  EXPECT_EQ(before, 10u);
  EXPECT_TRUE(compare_and_swap_guarded(&word, 10, 1, &before));
  EXPECT_EQ(before, 10u);
  EXPECT_EQ(word, 1u);
}

// The reader sees old words or new ones, and the last word only when all others are there.
TEST(GuardedCopy, WordsComeInOnePieceAndTheLastOneLast) {
  constexpr size_t kWords = 64;
  for (const size_t shift : {0, 1, 8, 4095}) {  // the source is near the destination, modulo 4 KiB
    alignas(4096) static std::atomic<uint64_t> to[kWords];
    alignas(4096) static std::byte from[8 * kWords + 4096];
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread reader([&] {
      while (!stop) {
        const uint64_t last = to[kWords - 1].load(std::memory_order_acquire);
        const uint64_t first = to[0].load(std::memory_order_acquire);
        if (last % 0x0101010101010101 != 0 || first % 0x0101010101010101 != 0 || first < last) ++wrong;
      }
    });
    for (int round = 1; round < 200; ++round) {
      std::memset(from, round, sizeof from);
      ASSERT_TRUE(copy_guarded(to, from + shift, 8 * kWords));
    }
    stop = true;
    reader.join();
    EXPECT_EQ(wrong, 0);
    for (auto& word : to) word = 0;
  }
}

// ---- the program's own handling ----

sigjmp_buf before_fault;
volatile sig_atomic_t handled;

void note(int) { handled = handled + 1; }
void note_and_leave(int, siginfo_t* info, void*) {
  handled = info->si_addr != nullptr ? 100 : 1;
  siglongjmp(before_fault, 1);
}

struct sigaction action_of(void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  return action;
}

TEST(GuardedCopy, OtherFaultsAreTheProgramsOwn) {
  ASSERT_TRUE(install_copy_guard());
  struct sigaction action {};
  action.sa_sigaction = note_and_leave;
  action.sa_flags = SA_SIGINFO;
  struct sigaction former {};
  ASSERT_EQ(exchange_sigbus_action(&action, &former), 0);
  const HalfAFile file;
  handled = 0;
  if (sigsetjmp(before_fault, 1) == 0) *reinterpret_cast<volatile char*>(file.gone()) = 1;
  EXPECT_EQ(handled, 100);
  // The program sees its own handler, and copies are guarded as before.
  struct sigaction seen {};
  ASSERT_EQ(exchange_sigbus_action(nullptr, &seen), 0);
  EXPECT_EQ(seen.sa_sigaction, note_and_leave);
  std::byte own[8];
  EXPECT_FALSE(copy_guarded(own, file.gone(), sizeof own));
  ASSERT_EQ(exchange_sigbus_action(&former, nullptr), 0);
}

TEST(GuardedCopy, SignalsThatAreSentReachTheProgram) {
  ASSERT_TRUE(install_copy_guard());
  struct sigaction former {
  }, seen{};
  struct sigaction action = action_of(note, static_cast<int>(SA_RESETHAND));
  ASSERT_EQ(exchange_sigbus_action(&action, &former), 0);
  handled = 0;
  raise(SIGBUS);
  EXPECT_EQ(handled, 1);
  ASSERT_EQ(exchange_sigbus_action(nullptr, &seen), 0);
  EXPECT_EQ(seen.sa_handler, SIG_DFL);
  action = action_of(SIG_IGN);
  ASSERT_EQ(exchange_sigbus_action(&action, nullptr), 0);
  raise(SIGBUS);
  EXPECT_EQ(handled, 1);
  ASSERT_EQ(exchange_sigbus_action(&former, nullptr), 0);
}

TEST(GuardedCopyDeathTest, WithoutAHandlerTheProgramEnds) {
  ASSERT_TRUE(install_copy_guard());
  const struct sigaction action = action_of(SIG_DFL);
  ASSERT_EQ(exchange_sigbus_action(&action, nullptr), 0);
  EXPECT_EXIT(
      {
        const HalfAFile file;
        *reinterpret_cast<volatile char*>(file.gone()) = 1;
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(raise(SIGBUS), ::testing::KilledBySignal(SIGBUS), "");
}

TEST(GuardedCopy, AThreadThatBlocksTheSignalDoesNotCopy) {
  ASSERT_TRUE(install_copy_guard());
  std::thread([] {
    EXPECT_TRUE(may_copy_guarded());
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &mask, nullptr);
    signal_mask_changed();
    EXPECT_FALSE(may_copy_guarded());
    pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
    signal_mask_changed();
    EXPECT_TRUE(may_copy_guarded());
  }).join();
}

}  // namespace
}  // namespace verbena
