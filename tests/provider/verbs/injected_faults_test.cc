// SPDX-License-Identifier: BSD-2-Clause
//
// Faults on purpose (docs/FAULTS.md): that the device does what a plan says. Each test runs in a process that
// begins with the plan in its environment, as under `verbena run --faults`; the form of the text is that of
// faults/plan.h.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "pair.h"

namespace verbena::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kAlways = UINT64_MAX;
constexpr uint32_t kAny = UINT32_MAX;
constexpr uint32_t kRkeyOutOfRange = 0x93, kPeerSilent = 0xb5, kNoReceivePosted = 0xc1;  // docs/ERRORS.md
constexpr uint32_t kMrs = 2;                                                             // enum class Counted

struct Rule {
  const char* what;
  uint32_t object = kAny;
  uint64_t nth = 0;
  uint64_t times = kAlways;
  uint64_t nanoseconds = 0;
  uint32_t vendor_err = 0;
};

std::string plan_of(const Rule& rule) {
  char text[256];
  snprintf(text, sizeof text,
           "1 0 0 0;%s %u %u %" PRIu64 " 0 1000000000000 %" PRIu64 " 0 %" PRIu64 " %" PRIu64 " %" PRIu64
           " %u",
           rule.what, rule.object, kAny, rule.nth, rule.times, kAlways, rule.nanoseconds, rule.nanoseconds,
           rule.vendor_err);
  return text;
}

class InjectedFaultsTest : public PairTest {
 protected:
  // True: this process has the plan. False: such a process has run this test, and has ended by `signal`, or
  // well.
  static bool begins_with(const Rule& rule, int signal = 0) {
    const std::string plan = plan_of(rule);
    if (const char* set = getenv("VERBENA_FAULTS"); set != nullptr && plan == set) return true;
    const std::string filter = "--gtest_filter=InjectedFaultsTest." +
                               std::string(testing::UnitTest::GetInstance()->current_test_info()->name());
    const pid_t child = fork();
    if (child == 0) {
      setenv("VERBENA_FAULTS", plan.c_str(), 1);
      alarm(50);  // it outlives execve(2), and ends before the patience of ctest
      execl("/proc/self/exe", "faults", filter.c_str(), nullptr);
      _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (signal != 0)
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << "status " << status;
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "status " << status << "; its own words are above";
    return false;
  }
  ibv_wc write() { return carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 64)); }
  ibv_mr* register_one() { return ibv_reg_mr(pd_.get(), local_.data(), 64, IBV_ACCESS_LOCAL_WRITE); }
};

TEST_F(InjectedFaultsTest, TheNthRequestFailsWithTheError) {
  if (!begins_with({.what = "fail", .nth = 2, .vendor_err = kRkeyOutOfRange})) return;
  EXPECT_EQ(write().status, IBV_WC_SUCCESS);
  const ibv_wc failed = write();
  EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(failed.vendor_err, kRkeyOutOfRange);
  EXPECT_EQ(write().status, IBV_WC_WR_FLUSH_ERR);
}

// The queue pair that takes the place of the failed one begins with its request 0, too.
TEST_F(InjectedFaultsTest, TheNextQueuePairHasNothingOfTheFaultsOfTheLast) {
  if (!begins_with({.what = "fail", .nth = 1, .vendor_err = kRkeyOutOfRange})) return;
  EXPECT_EQ(write().status, IBV_WC_REM_ACCESS_ERR);
  make_pair();
  EXPECT_EQ(write().status, IBV_WC_SUCCESS);
}

TEST_F(InjectedFaultsTest, ALostRequestIsSentAgainAfterItsTimeout) {
  if (!begins_with({.what = "lose", .times = 1})) return;
  make_pair({.timeout = 12});  // 4.096 us * 2^12
  const auto began = Clock::now();
  EXPECT_EQ(write().status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - began, 16ms);
}

TEST_F(InjectedFaultsTest, ARequestThatIsAlwaysLostExceedsItsRetries) {
  if (!begins_with({.what = "lose"})) return;
  make_pair({.timeout = 8, .retry_count = 2});
  const ibv_wc failed = write();
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(failed.vendor_err, kPeerSilent);
}

// The message is there at once; its sender knows it after the timeout.
TEST_F(InjectedFaultsTest, ALostAcknowledgementComesAfterTheTimeout) {
  if (!begins_with({.what = "lose_ack", .nth = 1})) return;
  make_pair({.timeout = 15});  // 4.096 us * 2^15
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(receive(remote_.sge(64, 64)), 0);
  ibv_sge sge = local_.sge(0, 64);
  ibv_send_wr wr = request(IBV_WR_SEND, &sge);
  const auto began = Clock::now();
  ASSERT_EQ(post(&wr), 0);
  EXPECT_EQ(next_completion(responder_cq_.get()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(cq_.get()).status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - began, 134ms);
  EXPECT_TRUE(is_empty(responder_cq_.get()));  // the repetition is not a second message
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 64)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).status, IBV_WC_SUCCESS);
}

// What its sender takes for lost has arrived.
TEST_F(InjectedFaultsTest, ARequestFailsThatIsCarriedOutAndNeverAcknowledged) {
  if (!begins_with({.what = "lose_ack"})) return;
  make_pair({.timeout = 8, .retry_count = 2});
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  const ibv_wc failed = carry_out(IBV_WR_SEND, local_.sge(0, 64));
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(failed.vendor_err, kPeerSilent);
  EXPECT_EQ(next_completion(responder_cq_.get()).status, IBV_WC_SUCCESS);
}

TEST_F(InjectedFaultsTest, ShuffledBytesAreAllThereAtTheEnd) {
  if (!begins_with({.what = "shuffle"})) return;
  for (size_t i = 0; i < kBufferSize; ++i) local_.data()[i] = static_cast<char>(i * 31 + i / 256);
  for (const uint32_t size : {1u, 2u, 7u, 8u, 17u, 64u, 300u, 4099u, 60'000u}) {
    memset(remote_.data(), 0, kBufferSize);
    EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(5, size)).status, IBV_WC_SUCCESS) << size;
    EXPECT_TRUE(same_bytes(size, 5)) << size;
    EXPECT_EQ(remote_.data()[size], 0) << size;
    memset(remote_.data(), 0, kBufferSize);
    ibv_sge to[] = {remote_.sge(3, size / 2), remote_.sge(3 + size / 2, size - size / 2)};
    ibv_sge from[] = {local_.sge(9, size / 3), local_.sge(9 + size / 3, size - size / 3)};
    ASSERT_EQ(receive(to, 2), 0);
    EXPECT_EQ(carry_out(request(IBV_WR_SEND, from, 2)).status, IBV_WC_SUCCESS) << size;
    EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, size);
    EXPECT_TRUE(same_bytes(size, 9, 3)) << size;
  }
}

// The second half of the range cannot be written: in their order, all of the first half would be placed before that is
// seen.
TEST_F(InjectedFaultsTest, ShuffledBytesAreNotPlacedInTheirOrder) {
  if (!begins_with({.what = "shuffle"})) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  Mr mr(ibv_reg_mr(pd_.get(), pages, 2 * page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(mprotect(static_cast<char*>(pages) + page, page, PROT_NONE), 0);
  memset(local_.data(), 1, 2 * page);
  ibv_sge sge = local_.sge(0, static_cast<uint32_t>(2 * page));
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(pages);
  wr.wr.rdma.rkey = mr->rkey;
  EXPECT_NE(carry_out(wr).status, IBV_WC_SUCCESS);
  EXPECT_LT(std::count(static_cast<char*>(pages), static_cast<char*>(pages) + page, 1),
            static_cast<std::ptrdiff_t>(page));
  mr.reset();
  munmap(pages, 2 * page);
}

TEST_F(InjectedFaultsTest, AnEventIsLate) {
  if (!begins_with({.what = "late", .nth = 1, .nanoseconds = 20'000'000})) return;
  Channel channel(ibv_create_comp_channel(context_.get()));
  Cq cq(ibv_create_cq(context_.get(), 16, nullptr, channel.get(), 0));
  ibv_qp_init_attr init = qp_init(cq.get(), responder_cq_.get());
  requester_.reset(ibv_create_qp(pd_.get(), &init));
  responder_.reset();
  init = qp_init(responder_cq_.get(), responder_cq_.get());
  responder_.reset(ibv_create_qp(pd_.get(), &init));
  connect(requester_.get(), responder_->qp_num, {});
  connect(responder_.get(), requester_->qp_num, {});
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ibv_sge sge = local_.sge(0, 64);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  ASSERT_EQ(post(&wr), 0);
  const auto began = Clock::now();
  ibv_cq* told = nullptr;
  void* of_program = nullptr;
  ASSERT_TRUE(becomes_readable(channel->fd));
  ASSERT_EQ(ibv_get_cq_event(channel.get(), &told, &of_program), 0);
  EXPECT_GE(Clock::now() - began, 20ms);
  ibv_ack_cq_events(told, 1);
  EXPECT_EQ(next_completion(cq.get()).status, IBV_WC_SUCCESS);
  requester_.reset();
}

TEST_F(InjectedFaultsTest, ADelayedRequestStartsLater) {
  if (!begins_with({.what = "delay", .times = 1, .nanoseconds = 20'000'000})) return;
  const auto began = Clock::now();
  EXPECT_EQ(write().status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - began, 20ms);
}

TEST_F(InjectedFaultsTest, ThePeerSeemsToHaveNoReceiveRequest) {
  if (!begins_with({.what = "rnr", .nth = 1})) return;
  make_pair({.rnr_retry = 0});
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  const ibv_wc failed = carry_out(IBV_WR_SEND, local_.sge(0, 64));
  EXPECT_EQ(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(failed.vendor_err, kNoReceivePosted);
  EXPECT_TRUE(is_empty(responder_cq_.get()));
}

// Two regions are made before.
TEST_F(InjectedFaultsTest, TheNthRegionIsRefused) {
  if (!begins_with({.what = "refuse", .object = kMrs, .nth = 3})) return;
  errno = 0;
  EXPECT_EQ(register_one(), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  Mr fourth(register_one());
  EXPECT_NE(fourth, nullptr);
}

TEST_F(InjectedFaultsTest, APollFindsNothingForATime) {
  if (!begins_with({.what = "hold", .nth = 1, .nanoseconds = 20'000'000})) return;
  ibv_sge sge = local_.sge(0, 64);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  ASSERT_EQ(post(&wr), 0);
  const auto began = Clock::now();
  EXPECT_EQ(next_completion(cq_.get()).status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - began, 20ms);
}

TEST_F(InjectedFaultsTest, ArmingRaisesAnEventWithoutACompletion) {
  if (!begins_with({.what = "wake"})) return;
  Channel channel(ibv_create_comp_channel(context_.get()));
  Cq cq(ibv_create_cq(context_.get(), 16, nullptr, channel.get(), 0));
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ibv_cq* told = nullptr;
  void* of_program = nullptr;
  ASSERT_TRUE(becomes_readable(channel->fd));
  ASSERT_EQ(ibv_get_cq_event(channel.get(), &told, &of_program), 0);
  ibv_ack_cq_events(told, 1);
  EXPECT_EQ(told, cq.get());
  EXPECT_TRUE(is_empty(cq.get()));
}

TEST_F(InjectedFaultsTest, TheProcessEnds) {
  if (!begins_with({.what = "die", .nth = 2}, SIGKILL)) return;
  EXPECT_EQ(write().status, IBV_WC_SUCCESS);
  write();
}

// Its counts are its own, and it waits for no lock of a thread of its parent.
TEST_F(InjectedFaultsTest, AForkedChildCountsFromTheBeginning) {
  if (!begins_with({.what = "refuse", .object = kMrs, .nth = 3})) return;
  EXPECT_EQ(register_one(), nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    Context context = open_device();
    Pd pd(context ? ibv_alloc_pd(context.get()) : nullptr);
    if (!pd) _exit(1);
    static char bytes[64];
    for (int i = 1; i <= 4; ++i)
      if ((ibv_reg_mr(pd.get(), bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE) == nullptr) != (i == 3))
        _exit(1 + i);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace verbena::test
