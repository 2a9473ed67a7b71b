// SPDX-License-Identifier: BSD-2-Clause
//
// Two processes of different nodes that begin a connection to each other at the same moment: the lower one
// does not welcome the other's before its own has had time, so that no connection that carries datagrams is
// replaced.
#include <gtest/gtest.h>

#include <vector>

#include "unit/engine/datagram_scene.h"
#include "unit/engine/played_node.h"
#include "wire/refusal.h"

namespace verbena {
namespace {

using wire::Refusal;

constexpr int64_t kOwnHasTime = 50'000'000;           // ns
constexpr wire::ProcessId kHigher{UINT64_MAX, 1, 1};  // than this process
constexpr wire::ProcessId kLower{0, 1, 1};

// This process, and the other node.
struct TwoThatBegin {
  TwoThatBegin() {
    side.send_cq = make_cq(there.end.context.get(), 16);
    side.recv_cq = make_cq(there.end.context.get(), 16);
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 2, 2, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(there.end.pd.get(), &init, side.send_cq.get(), side.recv_cq.get(), 0xa, &qp), 0);
    side.qp.reset(qp);
    DatagramScene::start(qp);
  }
  // A datagram for the other node: a connection is requested.
  void send_datagram() {
    Sges sges{there.end.memory.sge(0, 8)};
    ibv_send_wr wr = request(IBV_WR_SEND, sges, 1);
    wr.wr.ud = {to_there.ah(), PlayedNode::kQpn, kQkey};
    ASSERT_EQ(post(*side, wr), 0);
    ASSERT_TRUE(eventually([&] { return there.end.calls.load() == 1; }));
  }
  // The process asks to be let in.
  Refusal ask(const wire::ProcessId& process, const GidEntry& from = End::address_of(false)) {
    int stream[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
    wire::EstablishedConnection arriving;
    arriving.fd = stream[0];
    arriving.peer = process;
    arriving.peer_address.bytes = from.raw;
    arriving.own_address.bytes = End::address_of(true).raw;
    welcomed = false;
    const Refusal refusal = there.end.remote().let_in(arriving, [&] { return welcomed = !has_hung_up; });
    if (refusal != Refusal::kNone) close(stream[0]);
    close(stream[1]);
    EXPECT_EQ(welcomed, refusal == Refusal::kNone);
    return refusal;
  }

  PlayedNode there;
  Side side;
  Address to_there{there.end.pd.get(), address_of(End::address_of(false), 0)};
  bool welcomed = false;
  bool has_hung_up = false;
};

class BothBegin : public ::testing::Test, protected TwoThatBegin {};

// Repeats an attempt that proves nothing because this process was not scheduled in time (false).
template <typename Attempt>
void repeat_until_in_time(Attempt attempt) {
  constexpr int kAttempts = 20;
  for (int i = 0; i < kAttempts; ++i) {
    TwoThatBegin two;
    const bool in_time = attempt(two);
    if (in_time || testing::Test::HasFailure()) return;
  }
  FAIL() << kAttempts << " times this process was not scheduled in time";
}

TEST_F(BothBegin, TheLowerOneIsLetInAtOnce) {
  send_datagram();
  EXPECT_EQ(ask(kLower), Refusal::kNone);
}

TEST_F(BothBegin, TheHigherOneIsLetInIfNoConnectionIsRequested) { EXPECT_EQ(ask(kHigher), Refusal::kNone); }

TEST_F(BothBegin, TheHigherOneOfAnotherAddressIsLetIn) {
  send_datagram();
  EXPECT_EQ(ask(kHigher, End::address_of(true)), Refusal::kNone);
}

TEST(BothBeginInTime, TheHigherOneIsToldToTryAgainAndIsLetInThen) {
  repeat_until_in_time([](TwoThatBegin& two) {
    const int64_t began = now_ns();
    two.send_datagram();
    const Refusal first = two.ask(kHigher);
    if (first == Refusal::kNone && now_ns() - began >= kOwnHasTime) return false;
    EXPECT_EQ(first, Refusal::kBusy);
    EXPECT_TRUE(eventually([&] { return two.ask(kHigher) == Refusal::kNone; }));
    EXPECT_GE(now_ns() - began, kOwnHasTime);
    return true;
  });
}

// The other end has accepted the own connection: a process there has not been scheduled yet.
TEST(BothBeginInTime, AnOwnConnectionThatWasAcceptedIsWaitedForLonger) {
  repeat_until_in_time([](TwoThatBegin& two) {
    const int64_t began = now_ns();
    two.send_datagram();
    two.there.end.remote().taken(1);
    EXPECT_TRUE(eventually([&] { return now_ns() - began > 2 * kOwnHasTime; }));
    const Refusal after_a_while = two.ask(kHigher);
    if (after_a_while == Refusal::kNone && now_ns() - began >= 10 * kOwnHasTime) return false;
    EXPECT_EQ(after_a_while, Refusal::kBusy);
    EXPECT_TRUE(eventually([&] { return two.ask(kHigher) == Refusal::kNone; }));
    return true;
  });
}

TEST_F(BothBegin, TheHigherOneIsLetInWhenTheOwnConnectionHasFailed) {
  send_datagram();
  there.end.remote().failed(1, Refusal::kUnreachable);
  EXPECT_EQ(ask(kHigher), Refusal::kNone);
}

TEST_F(BothBegin, OneThatHasHungUpIsNotPutToUse) {
  has_hung_up = true;
  EXPECT_EQ(ask(kHigher), Refusal::kClosed);
  EXPECT_TRUE(there.end.is_alone());
}

}  // namespace
}  // namespace verbena
