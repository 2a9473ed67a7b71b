// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/poll_patience.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

// ---- the policy ----

// After a yield that took so long, ns, with this wait before it: how long the next wait is.
struct PatienceRow {
  const char* name;
  int found_alone;  // yields that found nobody, before
  int64_t took, wait;
};
constexpr int64_t kAlone = 200;
const PatienceRow kPatienceRows[] = {
    {"Alone", 0, kAlone, 2 * PollPatience::kFirstWait},
    {"AloneAgain", 1, kAlone, 4 * PollPatience::kFirstWait},
    {"AloneForLong", 20, kAlone, PollPatience::kLongestWait},
    {"JustNotGivenAway", 0, PollPatience::kGivenAway - 1, 2 * PollPatience::kFirstWait},
    {"JustGivenAway", 0, PollPatience::kGivenAway, PollPatience::kShortestWait},
    {"ToOneThatPolls", 20, 2'000, PollPatience::kShortestWait},
    {"ToSevenThatPoll", 20, 12'000, PollPatience::kShortestWait},
    {"ToSeveralThatWait", 0, 128'000, 2'000},
    {"ToOneThatComputes", 0, 4'000'000, 62'500},
    {"ToMany", 0, 1'000'000'000, PollPatience::kLongestWait},
};

class PatienceOfPolls : public ::testing::TestWithParam<PatienceRow> {};
INSTANTIATE_TEST_SUITE_P(Yields, PatienceOfPolls, ::testing::ValuesIn(kPatienceRows),
                         [](const auto& row) { return row.param.name; });

// Polls that find nothing, each `each` ns after the one before, until the thread yields; at most `most`.
int64_t polls_to_yield(PollPatience& patience, int64_t& now, int64_t each, int64_t most = 1'000'000) {
  for (int64_t polls = 1; polls <= most; ++polls) {
    now += each;
    if (patience.is_due() && patience.look(now)) return polls;
  }
  return -1;
}

TEST_P(PatienceOfPolls, WaitsNextTime) {
  PollPatience patience;
  int64_t now = 1'000'000;
  for (int i = 0; i <= GetParam().found_alone; ++i) {
    ASSERT_GT(polls_to_yield(patience, now, 10), 0);
    patience.yielded(now += i < GetParam().found_alone ? kAlone : GetParam().took);
  }
  EXPECT_EQ(patience.wait(), GetParam().wait);
  const int64_t polls = polls_to_yield(patience, now, 10);
  EXPECT_GE(polls * 10, GetParam().wait);
  EXPECT_LE(polls * 10, GetParam().wait + 2 * 10 * int64_t{PollPatience::kPollsPerLook});
}

TEST(PollPatience, BeginsAgainWithEachCompletion) {
  PollPatience patience;
  int64_t now = 1'000'000;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(polls_to_yield(patience, now, 10, PollPatience::kPollsPerLook), -1);
    patience.found();
  }
  EXPECT_GE(polls_to_yield(patience, now, 10) * 10, PollPatience::kFirstWait);
}

TEST(PollPatience, RemembersWhatItLearnedWhenSomethingComes) {
  PollPatience patience;
  int64_t now = 1'000'000;
  ASSERT_GT(polls_to_yield(patience, now, 10), 0);
  patience.yielded(now += 5'000);
  patience.found();
  EXPECT_EQ(patience.wait(), PollPatience::kShortestWait);
}

TEST(PollPatience, PollsBetweenOtherWorkDoNotYield) {
  PollPatience patience;
  int64_t now = 1'000'000;
  EXPECT_EQ(polls_to_yield(patience, now, PollPatience::kSlowPoll + 1, 10'000), -1);
  EXPECT_EQ(polls_to_yield(patience, now, 1'000'000'000, 10'000), -1) << "once a second";
}

TEST(PollPatience, PollsOfSocketsYield) {
  PollPatience patience;
  int64_t now = 1'000'000;
  EXPECT_GT(polls_to_yield(patience, now, 500), 0);
}

// ---- ibv_poll_cq(3) ----

void run_on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
}

int64_t processor_time() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

class OneProcessor : public ::testing::Test, protected Scene {};

// Two threads that poll for each other's messages on one processor. The time that they use, not the time that
// passes: other programs may be at work.
TEST_F(OneProcessor, PollersDoNotKeepEachOtherWaiting) {
  constexpr int kRounds = 1000;
  constexpr int64_t kMost = 1'000'000'000;  // if each message waits until the scheduler preempts: 6 s
  const int cpu = sched_getcpu();
  const Owned<Cq> cqs[] = {make_cq(context.get()), make_cq(context.get())};
  const Owned<Qp> qps[] = {make_qp(pd.get(), cqs[0].get(), cqs[0].get()),
                           make_qp(pd.get(), cqs[1].get(), cqs[1].get())};
  connect(qps[0].get(), qp_number(qps[1].get()), gid());
  connect(qps[1].get(), qp_number(qps[0].get()), gid());
  Region bytes(pd.get(), 64);
  std::atomic<int64_t> used{0};
  const auto play = [&](int side) {
    run_on(cpu);
    const int64_t before = processor_time();
    for (int round = 0; round < kRounds; ++round) {
      if (side == 0) {
        ASSERT_EQ(send(qps[0].get(), {bytes.sge(0, 8)}), 0);
      }
      for (bool received = false; !received;) {
        ibv_wc wc{};
        const int got = poll_cq(cqs[side].get(), 1, &wc);
        ASSERT_GE(got, 0);
        if (got == 0) {
          ASSERT_LT(processor_time() - before, 20 * kMost);
          continue;
        }
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        received = wc.opcode == IBV_WC_RECV;
      }
      ASSERT_EQ(receive(qps[side].get(), {bytes.sge(16, 8)}), 0);
      if (side == 1) {
        ASSERT_EQ(send(qps[1].get(), {bytes.sge(0, 8)}), 0);
      }
    }
    used += processor_time() - before;
  };
  for (const Owned<Qp>& qp : qps)
    for (int i = 0; i < 2; ++i) ASSERT_EQ(receive(qp.get(), {bytes.sge(16, 8)}), 0);
  std::thread other(play, 1);
  std::thread(play, 0).join();
  other.join();
  EXPECT_LT(used, kMost) << "ns of processor time for " << 2 * kRounds << " messages";
}

}  // namespace
}  // namespace verbena
