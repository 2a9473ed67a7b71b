// SPDX-License-Identifier: BSD-2-Clause
//
// The processes that this one has met. One that does not answer is waited for once, and only by threads that
// need it.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "fabric/peer_adapter.h"
#include "fabric/slot_folder.h"
#include "unit/common/child.h"
#include "unit/common/own_process.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

// Another process of the node.
class Neighbour {
 public:
  explicit Neighbour(const std::string& node)
      : number_(static_cast<Number*>(
            mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        process([&](const Child& self) {
          const ScopedMembership here(node);
          *number_ = {here.membership.slot(), here.membership.generation()};
          self.tell(here.error == 0 ? 'y' : 'n');
          return self.hear() == 0 ? 1 : 0;
        }) {
    EXPECT_EQ(process.answer(), 'y');
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() { munmap(number_, sizeof *number_); }

  uint32_t slot() const { return number_->slot; }
  uint32_t generation() const { return number_->generation; }

 private:
  struct Number {
    uint32_t slot, generation;
  };
  Number* const number_;

 public:
  Child process;
};

class MetProcesses : public ::testing::Test {
 protected:
  int get(const Neighbour& whom, PeerTable::Patience patience, std::shared_ptr<PeerAdapter>* out = nullptr) {
    std::shared_ptr<PeerAdapter> unwanted;
    return table.get(own.membership, whom.slot(), whom.generation(), out != nullptr ? out : &unwanted,
                     patience);
  }

  TemporaryNode node;
  Neighbour first{node.path()}, second{node.path()};
  ScopedMembership own{node.path()};
  PeerTable table;
};

constexpr int kLongEnough = 20'000, kBriefly = 100;  // ms

TEST_F(MetProcesses, AreMetOnce) {
  std::shared_ptr<PeerAdapter> met, again;
  ASSERT_EQ(get(first, {kLongEnough}, &met), 0);
  EXPECT_EQ(met->slot(), first.slot());
  ASSERT_EQ(get(first, {kLongEnough}, &again), 0);
  EXPECT_EQ(met, again);
}

// Everything of another process's folder is reached without following a link.
TEST_F(MetProcesses, AreNotReachedThroughALink) {
  std::shared_ptr<PeerAdapter> met;
  ASSERT_EQ(get(first, {kLongEnough}, &met), 0);
  const std::string folder = slot_folder(node.path(), first.slot(), first.generation());
  const std::string elsewhere = folder + ".elsewhere";
  ASSERT_EQ(rename(folder.c_str(), elsewhere.c_str()), 0);
  ASSERT_EQ(mkfifo((elsewhere + "/c1").c_str(), 0600), 0);
  ASSERT_EQ(symlink(elsewhere.c_str(), folder.c_str()), 0);
  EXPECT_EQ(met->notify(1, 0), EPERM);
  ASSERT_EQ(unlink(folder.c_str()), 0);
  ASSERT_EQ(rename(elsewhere.c_str(), folder.c_str()), 0);
  EXPECT_EQ(met->notify(1, 0), 0);
}

TEST_F(MetProcesses, ASilentProcessIsWaitedForOnce) {
  using std::chrono::steady_clock;
  constexpr int kTimes = 100;
  first.process.stop();
  const auto began = steady_clock::now();
  EXPECT_EQ(get(first, {kBriefly}), ETIMEDOUT);
  const auto waited = steady_clock::now();
  EXPECT_GE(waited - began, std::chrono::milliseconds(kBriefly));
  for (int i = 0; i < kTimes; ++i) EXPECT_EQ(get(first, {kBriefly}), ETIMEDOUT);
  EXPECT_LT(steady_clock::now() - waited, std::chrono::milliseconds(kBriefly) * kTimes / 2);
  first.process.go_on();
  EXPECT_TRUE(eventually([&] { return get(first, {kBriefly}) == 0; }));
}

// Earlier callers waited for a shorter time.
TEST_F(MetProcesses, ACallerWithTimeWaitsAgain) {
  first.process.stop();
  EXPECT_EQ(get(first, {1}), ETIMEDOUT);
  std::thread soon([&] { first.process.go_on(); });
  EXPECT_EQ(get(first, {1, kLongEnough}), 0);
  soon.join();
}

TEST_F(MetProcesses, SignalsMakeNobodyWaitLonger) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 20'000}, {0, 20'000}}, never{};
  first.process.stop();
  setitimer(ITIMER_REAL, &often, nullptr);
  EXPECT_EQ(get(first, {kBriefly}), ETIMEDOUT);
  setitimer(ITIMER_REAL, &never, nullptr);
}

TEST_F(MetProcesses, AWaitingCallerDoesNotBlockOtherPeers) {
  first.process.stop();
  std::atomic<int> error{-1}, thread{0};
  std::thread waits([&] {
    thread = gettid();
    error = get(first, {kLongEnough});
  });
  EXPECT_TRUE(eventually([&] { return thread != 0 && is_asleep(thread); }));
  EXPECT_EQ(get(second, {kLongEnough}), 0);
  EXPECT_EQ(error, -1) << "it waits still";
  first.process.go_on();
  waits.join();
  EXPECT_EQ(error, 0);
}

TEST_F(MetProcesses, TwoThatWaitMeetTheSame) {
  first.process.stop();
  std::shared_ptr<PeerAdapter> met[2];
  std::thread other([&] { EXPECT_EQ(get(first, {kLongEnough}, &met[1]), 0); });
  std::thread sooner_or_later([&] { first.process.go_on(); });
  EXPECT_EQ(get(first, {kLongEnough}, &met[0]), 0);
  other.join();
  sooner_or_later.join();
  EXPECT_EQ(met[0], met[1]);
}

TEST_F(MetProcesses, AProcessThatEndsUnansweredIsGone) {
  first.process.stop();
  EXPECT_EQ(get(first, {kBriefly}), ETIMEDOUT);
  first.process.kill_now();
  const int error = get(first, {kLongEnough});
  EXPECT_TRUE(error == ECONNREFUSED || error == ENOENT) << error;
}

}  // namespace
}  // namespace verbena
