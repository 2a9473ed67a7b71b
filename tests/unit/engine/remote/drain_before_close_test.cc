// SPDX-License-Identifier: BSD-2-Clause
//
// A process that acknowledges and ends at once has acknowledged: its last frames are still in the socket.
// They must not be dropped because a request finds the connection closed, or because a queue pair is in use
// for a moment.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/remote/peer.h"
#include "engine/remote/remote_path.h"
#include "unit/common/own_process.h"
#include "unit/engine/played_node.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::FrameKind;
using wire::RequestHead;

constexpr int kPolls = 200;  // one in 128 waits for the progress lock

class DrainBeforeClose : public ::testing::Test {
 protected:
  DrainBeforeClose() {
    connect(first, PlayedNode::kQpn, End::address_of(false), {});
    connect(other.get(), PlayedNode::kQpn + 1, End::address_of(false), {});
    there.meet();
  }
  // Sends a request; returns the acknowledgement for it.
  AnswerHead begin(Qp* qp) {
    EXPECT_EQ(send(qp, {there.end.memory.sge(0, 100)}), 0);
    const std::vector<std::byte> frame = there.hear_and_tell();
    if (frame.empty()) return ADD_FAILURE() << "no request", AnswerHead{};
    const auto head = PlayedNode::head_of<RequestHead>(frame);
    return {0, FrameKind::kAck, 0, {}, head.source_qpn, head.target_qpn, head.path_generation, head.number + 1, 0};
  }
  RemotePeer& peer() const { return *path_of(*first)->peer; }
  // The other end acknowledges what is under way and ends, while `first` is in use. A request of the other
  // queue pair finds the connection closed.
  template <typename After>
  void end_while_in_use(After after) {
    const AnswerHead acknowledgement = begin(first);
    there.say(begin(other.get()));
    EXPECT_EQ(there.end.sent().status, IBV_WC_SUCCESS);
    first->send_lock.lock();
    there.say(acknowledgement);
    there.hang_up();
    ASSERT_EQ(send(other.get(), {there.end.memory.sge(0, 100)}), 0);
    // Another thread polls so often that it has had the progress lock since.
    std::atomic<int> polls{0};
    std::thread poller([&] {
      while (++polls < kPolls) nothing(there.end.recv_cq.get());
    });
    EXPECT_TRUE(eventually([&] { return polls.load() == kPolls || !peer().connected.load(); }));
    after();
    poller.join();
  }

  PlayedNode there;
  Qp* const first = there.end.qp.get();
  Owned<Qp> other = make_qp(there.end.pd.get(), there.end.send_cq.get(), there.end.recv_cq.get());
};

TEST_F(DrainBeforeClose, AreHeardThoughTheQueuePairIsInUse) {
  end_while_in_use([&] { first->send_lock.unlock(); });
  EXPECT_EQ(there.end.sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(eventually([&] { return !peer().connected.load(); }));
}

TEST_F(DrainBeforeClose, AreNotWaitedForForEver) {
  end_while_in_use([&] {
    EXPECT_TRUE(eventually([&] { return !peer().connected.load(); }));
    first->send_lock.unlock();
  });
}

// After a connection that was given up in the middle of a frame there is nothing left to check for.
TEST_F(DrainBeforeClose, LeaveTheServiceThreadAsleep) {
  constexpr uint64_t kMost = 1000;  // in a second; it would be 5,000 with one look each 200 us
  there.say(wire::FrameStart{0, static_cast<FrameKind>(0xee), {}});
  EXPECT_TRUE(eventually([&] { return !peer().connected.load(); }));
  const uint64_t before = sleeps();
  const int64_t began = now_ns();
  usleep(500'000);  // not a wait: the time over which sleeps are counted
  const uint64_t slept = sleeps() - before;
  EXPECT_LT(slept, kMost * static_cast<uint64_t>(now_ns() - began) / 1'000'000'000);
}

}  // namespace
}  // namespace verbena
