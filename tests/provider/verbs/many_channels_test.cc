// SPDX-License-Identifier: BSD-2-Clause
//
// A program with a completion channel for each of its completion queues: what one more costs, and that closed
// ones give their descriptors back.
#include <dirent.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "fixture.h"

namespace verbena::test {
namespace {

int64_t processor_time() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

size_t open_descriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class ManyChannelsTest : public DeviceTest {
 protected:
  static constexpr rlim_t kDescriptors = 11'000;  // two for each of 5,000 channels, and others

  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit raised = before_;
    raised.rlim_cur = std::max(before_.rlim_cur, kDescriptors);
    if (setrlimit(RLIMIT_NOFILE, &raised) != 0)
      GTEST_SKIP() << "the machine allows " << before_.rlim_max << " descriptors, the test needs "
                   << kDescriptors;
  }
  void TearDown() override {
    queues_.clear();
    channels_.clear();
    setrlimit(RLIMIT_NOFILE, &before_);
  }

  // One more channel, with its CQ.
  void create() {
    channels_.emplace_back(ibv_create_comp_channel(context_.get()));
    ASSERT_NE(channels_.back(), nullptr) << strerror(errno);
    queues_.emplace_back(ibv_create_cq(context_.get(), 1, nullptr, channels_.back().get(), 0));
    ASSERT_NE(queues_.back(), nullptr) << strerror(errno);
  }
  void grow_to(size_t count) {
    while (channels_.size() < count && !HasFatalFailure()) create();
  }

  // The processor time of creating one, in nanoseconds: the median of 101.
  int64_t time_of_creation() {
    std::vector<int64_t> times;
    while (times.size() < 101 && !HasFatalFailure()) {
      const int64_t begin = processor_time();
      create();
      times.push_back(processor_time() - begin);
      queues_.pop_back();
      channels_.pop_back();
    }
    std::nth_element(times.begin(), times.begin() + 50, times.end());
    return times[50];
  }

  rlimit before_ = {};
  std::vector<Channel> channels_;
  std::vector<Cq> queues_;
};

TEST_F(ManyChannelsTest, OneMoreCostsAsMuchBesideFiveThousandAsBesideTen) {
  grow_to(10);
  const int64_t few = time_of_creation();
  grow_to(5000);
  const int64_t many = time_of_creation();
  EXPECT_LT(many, few * 5) << few << " ns beside 10, " << many << " ns beside 5000";
}

TEST_F(ManyChannelsTest, ClosedOnesGiveTheirDescriptorsBack) {
  for (int i = 0; i < 8; ++i) Channel(ibv_create_comp_channel(context_.get()));
  const size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) ASSERT_NE(Channel(ibv_create_comp_channel(context_.get())), nullptr);
  EXPECT_LE(open_descriptors(), before + 8);
}

// The channel that is closed keeps a descriptor until one more is created. That must not be what is missing.
TEST_F(ManyChannelsTest, AtTheLimitOneCanBeCreatedForOneThatWasClosed) {
  grow_to(100);
  rlimit tight = before_;
  tight.rlim_cur = open_descriptors();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  Channel one_more;
  do one_more.reset(ibv_create_comp_channel(context_.get()));
  while (one_more != nullptr && (channels_.push_back(std::move(one_more)), true));
  EXPECT_EQ(errno, EMFILE);
  for (size_t closed : {99u, 50u, 0u}) {
    queues_[closed].reset();
    channels_[closed].reset();
    channels_[closed].reset(ibv_create_comp_channel(context_.get()));
    EXPECT_NE(channels_[closed], nullptr) << closed << ": " << strerror(errno);
  }
}

}  // namespace
}  // namespace verbena::test
