// SPDX-License-Identifier: BSD-2-Clause
//
// The progress lock, when the service thread holds it and does not come to an end: another thread has a lock
// that it needs, as a thread that is not scheduled would.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote_path.h"
#include "unit/engine/played_node.h"

namespace verbena {
namespace {

class ProgressLock : public ::testing::Test {
 protected:
  ProgressLock() {
    there.end.connect_qp();
    there.meet();
  }
  ~ProgressLock() override {
    if (is_kept_) release();
  }

  // Keeps the service thread in progress: the connection has ended, and it reports this to a queue pair whose
  // lock is held here.
  void keep_service_in_progress() {
    there.end.qp->send_lock.lock();
    is_kept_ = true;
    there.hang_up();
    // The test does not poll: the service thread has noticed it.
    ASSERT_TRUE(eventually([&] { return !path_of(*there.end.qp)->peer->connected.load(); }));
  }
  void release() {
    there.end.qp->send_lock.unlock();
    is_kept_ = false;
  }
  // How long each of `many` polls takes, ns.
  std::vector<int64_t> times_of_polls(size_t many) {
    std::vector<int64_t> times;
    for (size_t i = 0; i < many; ++i) {
      const int64_t began = now_ns();
      EXPECT_TRUE(nothing(there.end.recv_cq.get()));
      times.push_back(now_ns() - began);
    }
    return times;
  }

  PlayedNode there;
  bool is_kept_ = false;
};

constexpr int64_t kProgressPatience = 1'000'000;  // so long a poll waits, ns
constexpr size_t kInVain = 128;               // and the next poll waits
constexpr size_t kWaits = 8;

TEST_F(ProgressLock, APollWaitsForTheServiceThreadAfterSoManyInVain) {
  keep_service_in_progress();
  const std::vector<int64_t> times = times_of_polls(kWaits * (kInVain + 1));
  // By the system's clock, which may be corrected a little during the wait.
  for (size_t i = kInVain; i < times.size(); i += kInVain + 1)
    EXPECT_GE(times[i], kProgressPatience * 9 / 10) << i;
}

TEST_F(ProgressLock, TheOtherPollsDoNotWait) {
  keep_service_in_progress();
  std::vector<int64_t> times = times_of_polls(kWaits * (kInVain + 1));
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  EXPECT_LT(times[times.size() / 2], kProgressPatience * 9 / 10) << "the median";
}

// It does not wait for the lock to be released, which does not happen here.
TEST_F(ProgressLock, APollWaitsForAMillisecondOnly) {
  keep_service_in_progress();
  const std::vector<int64_t> times = times_of_polls(kWaits * (kInVain + 1));
  int64_t shortest = INT64_MAX;
  for (size_t i = kInVain; i < times.size(); i += kInVain + 1) shortest = std::min(shortest, times[i]);
  EXPECT_LT(shortest, 50 * kProgressPatience);
}

TEST_F(ProgressLock, AfterTheServiceThreadBothGoOn) {
  keep_service_in_progress();
  times_of_polls(kInVain + 1);
  release();
  there.meet();
  there.say(wire::QueryHead{0, wire::FrameKind::kQuery, {}, qp_number(there.end.qp.get()), 0});
  std::vector<std::byte> frame;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(nothing(there.end.recv_cq.get()));
    frame = there.hear(0);
    return !frame.empty() && PlayedNode::kind_of(frame) == wire::FrameKind::kWhereabouts;
  }));
}

}  // namespace
}  // namespace verbena
