// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams between nodes that have to wait: those that find no receive request, for which the stream waits
// or not (docs/NETWORK.md, "Datagrams without a receive WQE"), and those that wait for a connection.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "observe/log.h"
#include "unit/engine/datagram_scene.h"
#include "unit/engine/played_node.h"

namespace verbena {
namespace {

using wire::DatagramHead;
using wire::FrameKind;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kShortHold = 5 * kMillisecond, kLongHold = 500 * kMillisecond;
constexpr uint32_t kReads = 16;  // after so many in a row the next one is waited for
constexpr int kSendDepth = 512;

// A process with a UD queue pair, and the other node.
class DatagramAfar : public ::testing::Test {
 protected:
  DatagramAfar() {
    side.send_cq = make_cq(end().context.get(), kSendDepth);
    side.recv_cq = make_cq(end().context.get(), 512);
    ibv_qp_init_attr init{};
    init.cap = {kSendDepth, 256, 2, 2, 0};
    init.qp_type = IBV_QPT_UD;
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(end().pd.get(), &init, side.send_cq.get(), side.recv_cq.get(), 0xa, &qp), 0);
    side.qp.reset(qp);
    DatagramScene::start(qp);
  }
  End& end() { return there.end; }

  PlayedNode there;
  Side side;
};

// ---- those that find no receive request ------------------------------------------------------------

class DatagramHold : public DatagramAfar {
 protected:
  uint32_t dropped() const { return (*side)->shared->dropped.load(); }
  uint64_t taken() const { return (*side)->shared->requests_in.load(); }

  void say_datagram(uint32_t source_qpn = 0x200) {
    DatagramHead head{};
    head.kind = FrameKind::kDatagram;
    head.target_qpn = side.number();
    head.source_qpn = source_qpn;
    head.qkey = kQkey;
    std::memcpy(head.destination, end().node.directory().devices().devices[0].ports[0].gids[0].raw.data(), 16);
    there.say(head, std::vector<std::byte>(kGrh + 8));
  }
  void post_receive() { ASSERT_EQ(receive(*side, {end().memory.sge(0, 256)}), 0); }

  // Lets the queue pair receive `many` in a row. The test does not poll meanwhile: the service thread reads
  // the stream, and leaves it alone for a while when the program polls.
  void take(uint32_t many) {
    const uint64_t before = taken();
    for (uint32_t i = 0; i < many; ++i) {
      post_receive();
      say_datagram();
    }
    ASSERT_TRUE(eventually([&] { return taken() == before + many; }));
  }
  // Time until a datagram without a receive request is dropped, ns.
  int64_t time_to_drop(bool polling) {
    const uint32_t before = dropped();
    const int64_t began = now_ns();
    say_datagram();
    EXPECT_TRUE(eventually([&] {
      EXPECT_TRUE(!polling || nothing(side.recv_cq.get()));
      return dropped() == before + 1;
    }));
    return now_ns() - began;
  }
  // The least of several times: load on the machine makes them longer, never shorter. Stops after one below
  // `enough`.
  template <typename Time>
  static int64_t least(int64_t enough, Time&& time) {
    int64_t least = kEndOfTime;
    for (int attempt = 0; attempt < 10 && least >= enough; ++attempt) least = std::min(least, time());
    return least;
  }
};

TEST_F(DatagramHold, ATargetThatHasTakenFifteenIsNotWaitedFor) {
  there.meet();
  const int64_t time = least(kLongHold, [&] {
    take(kReads - 1);
    return time_to_drop(false);
  });
  EXPECT_LT(time, kLongHold);
}

TEST_F(DatagramHold, ATargetThatHasTakenSixteenIsWaitedForLongWhileItDoesNotPoll) {
  there.meet();
  take(kReads);
  EXPECT_GE(time_to_drop(false), kLongHold);
}

TEST_F(DatagramHold, APollingTargetIsWaitedForBriefly) {
  there.meet();
  const int64_t time = least(0, [&] {
    take(kReads);
    completions(side.recv_cq.get(), kReads);
    return time_to_drop(true);
  });
  EXPECT_GE(time, kShortHold);
  EXPECT_LT(time, kLongHold);
}

TEST_F(DatagramHold, AConnectedQueuePairOnTheStreamIsNotMadeToWaitLong) {
  end().connect_qp();
  there.meet();
  const int64_t time = least(0, [&] {
    take(kReads);
    return time_to_drop(false);
  });
  EXPECT_GE(time, kShortHold);
  EXPECT_LT(time, kLongHold);
}

TEST_F(DatagramHold, ATargetWaitedForInVainIsNotWaitedForAgain) {
  there.meet();
  const int64_t time = least(kLongHold, [&] {
    take(kReads);
    completions(side.recv_cq.get(), kReads);
    time_to_drop(true);
    return time_to_drop(false);
  });
  EXPECT_LT(time, kLongHold);
}

// The datagrams behind it keep their places. If this process was not scheduled for half a second meanwhile,
// the attempt proves nothing and is repeated.
TEST_F(DatagramHold, AReceivePostedMeanwhileIsInTime) {
  constexpr uint32_t kWaiting = 3, kFirst = 0x300;
  constexpr int kAttempts = 20;
  there.meet();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint32_t dropped_before = dropped();
    take(kReads);
    const uint64_t taken_before = taken();
    const int64_t began = now_ns();
    say_datagram(kFirst);
    // One that is not waited for would have been dropped long before.
    EXPECT_TRUE(eventually([&] { return there.is_all_taken() && now_ns() - began >= 4 * kShortHold; }));
    for (uint32_t i = 1; i < kWaiting; ++i) say_datagram(kFirst + i);
    for (uint32_t i = 0; i < kWaiting; ++i) post_receive();
    const bool in_time = now_ns() - began < kLongHold;
    completions(side.recv_cq.get(), kReads);
    if (in_time) {
      for (uint32_t i = 0; i < kWaiting; ++i) EXPECT_EQ(side.received().src_qp, kFirst + i);
      EXPECT_EQ(dropped(), dropped_before);
      return;
    }
    const auto gone = [&] { return dropped() - dropped_before; };
    ASSERT_TRUE(eventually([&] { return taken() - taken_before + gone() == kWaiting; }));
    for (uint32_t unused = gone(); unused > 0; --unused) say_datagram();
    completions(side.recv_cq.get(), kWaiting);
  }
  FAIL() << kAttempts << " times this process was not scheduled for half a second";
}

TEST_F(DatagramHold, WhatIsForNobodyIsCountedForTheDeviceItCameTo) {
  const std::atomic<uint32_t>& stray = end().node.directory().header().stray_datagrams[0];
  there.meet();
  DatagramHead head{};
  head.kind = FrameKind::kDatagram;
  head.target_qpn = side.number() ^ 1;
  head.source_qpn = 0x200;
  std::memcpy(head.destination, end().node.directory().devices().devices[0].ports[0].gids[0].raw.data(), 16);
  for (int i = 0; i < 3; ++i) there.say(head, std::vector<std::byte>(kGrh + 8));
  EXPECT_TRUE(eventually([&] { return stray.load() == 3; })) << stray.load();
  EXPECT_EQ(dropped(), 0u);
}

struct Warned {  // before there are threads that look at the level
  const LogLevel before = std::exchange(log_level, LogLevel::kWarn);
  ~Warned() { log_level = before; }
};
class DatagramHoldWarned : Warned, public DatagramHold {};

TEST_F(DatagramHoldWarned, WhatIsForNobodyIsExplained) {
  const std::atomic<uint32_t>& stray = end().node.directory().header().stray_datagrams[0];
  there.meet();
  DatagramHead head{};
  head.kind = FrameKind::kDatagram;
  head.target_qpn = 0xfffff0;
  head.source_qpn = 0x200;
  std::memcpy(head.destination, end().node.directory().devices().devices[0].ports[0].gids[0].raw.data(), 16);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) there.say(head, std::vector<std::byte>(kGrh + 8));
  EXPECT_TRUE(eventually([&] { return stray.load() == 5; })) << stray.load();
  const std::string said = testing::internal::GetCapturedStderr();
  char numbers[200];
  snprintf(numbers, sizeof numbers,
           "is dropped: it is for QP 0x%06x, a number that no queue pair of the node has; the UD queue pair "
           "here is QP 0x%06x",
           0xfffff0, side.number());
  EXPECT_NE(said.find("SEND of 8 bytes from QP 0x000200 of "), std::string::npos) << said;
  EXPECT_NE(said.find(numbers), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;  // 1, 2, 4
}

// ---- those that wait for a connection -------------------------------------------------------------

constexpr int64_t kPatience = 2'000 * kMillisecond;  // then they are lost
constexpr int64_t kSearched = 1'000 * kMillisecond;  // so long more than a few stay in the send queue
constexpr uint32_t kMessage = 4096;
constexpr size_t kWholeFrame = sizeof(DatagramHead) + kGrh + kMessage;
constexpr size_t kMostForOne = 128 * 1024 / kWholeFrame, kMost = 1024 * 1024 / kWholeFrame;
constexpr uint32_t kLastOfAll = UINT32_MAX;  // the number of a last message

class DatagramQueue : public DatagramAfar {
 protected:
  DatagramQueue() {
    // The numbers that messages begin with.
    for (uint32_t i = 0; i < kSendDepth; ++i) std::memcpy(end().memory.data() + kMessage + 4 * i, &i, 4);
    std::memcpy(end().memory.data() + kMessage + 4 * kSendDepth, &kLastOfAll, 4);
  }

  void send_numbered(uint32_t qpn, uint32_t number, uint32_t size = kMessage) {
    const uint32_t place = number == kLastOfAll ? kSendDepth : number;
    Sges sges{end().memory.sge(kMessage + 4 * place, 4), end().memory.sge(0, size - 4)};
    ibv_send_wr wr = request(IBV_WR_SEND, sges, number);
    wr.wr.ud = {to_there.ah(), qpn, kQkey};
    ASSERT_EQ(post(*side, wr), 0);
  }
  uint32_t lost() const { return (*side)->shared->lost.load(); }
  // Polls the completions that are there; returns how many.
  size_t completed() {
    size_t count = 0;
    for (ibv_wc wc; poll_cq(side.send_cq.get(), 1, &wc) == 1; ++count) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    return count;
  }

  struct Heard {
    uint32_t qpn, number;
  };
  // Replies to queries and collects the messages for these queue pairs. Each is sent a last message, again if
  // it was lost; returns when all of those have come.
  std::vector<Heard> hear_all(std::set<uint32_t> qpns) {
    std::vector<Heard> all;
    for (const int64_t until = now_ns() + 20'000 * kMillisecond; !qpns.empty() && now_ns() < until;) {
      completed();
      const std::vector<std::byte> frame = there.hear(20);
      if (frame.empty()) {
        for (const uint32_t qpn : qpns) send_numbered(qpn, kLastOfAll);
      } else if (PlayedNode::kind_of(frame) == FrameKind::kQuery) {
        there.answer(PlayedNode::head_of<wire::QueryHead>(frame));
      } else if (PlayedNode::kind_of(frame) == FrameKind::kDatagram) {
        Heard heard{PlayedNode::head_of<DatagramHead>(frame).target_qpn, 0};
        std::memcpy(&heard.number, frame.data() + sizeof(DatagramHead) + kGrh, sizeof heard.number);
        if (heard.number == kLastOfAll)
          qpns.erase(heard.qpn);
        else
          all.push_back(heard);
      }
    }
    EXPECT_TRUE(qpns.empty()) << "the last message has not come";
    return all;
  }

  Address to_there{end().pd.get(), address_of(End::address_of(false), 0)};
};

TEST_F(DatagramQueue, GoesInOrderWhenTheConnectionIsThere) {
  constexpr uint32_t kMany = kMostForOne;
  const int64_t began = now_ns();
  for (uint32_t i = 0; i < kMany; ++i) send_numbered(PlayedNode::kQpn, i);
  EXPECT_EQ(completed(), kMany);
  there.meet();
  const bool in_time = now_ns() - began < kPatience;
  const std::vector<Heard> all = hear_all({PlayedNode::kQpn});
  EXPECT_TRUE(all.size() == kMany || !in_time) << all.size();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Heard& a, const Heard& b) { return a.number < b.number; }));
}

TEST_F(DatagramQueue, MoreThanAFewForOneStayInTheSendQueue) {
  constexpr uint32_t kMany = 2 * kMostForOne;
  const int64_t began = now_ns();
  for (uint32_t i = 0; i < kMany; ++i) send_numbered(PlayedNode::kQpn, i);
  const size_t at_once = completed();
  EXPECT_TRUE(at_once == kMostForOne || now_ns() - began >= kSearched) << at_once;
  there.meet();
  const bool in_time = now_ns() - began < kPatience;
  const std::vector<Heard> all = hear_all({PlayedNode::kQpn});
  EXPECT_TRUE(all.size() == kMany || !in_time) << all.size();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Heard& a, const Heard& b) { return a.number < b.number; }));
}

// While there is no room for a message, a shorter one behind it waits as well.
TEST_F(DatagramQueue, GoesInOrderWhateverTheSizes) {
  constexpr uint32_t kDestinations = 8, kShort = 8;
  std::set<uint32_t> qpns;
  for (uint32_t i = 0; i < kDestinations; ++i) {
    qpns.insert(PlayedNode::kQpn + i);
    for (uint32_t j = 0; j < 2 * kMostForOne - 10; ++j)
      send_numbered(PlayedNode::kQpn + i, j, j % 2 == 0 ? kMessage : kShort);
  }
  there.meet();
  std::map<uint32_t, uint32_t> next;
  for (const Heard& heard : hear_all(qpns)) {
    EXPECT_GE(heard.number, next[heard.qpn]) << "of " << heard.qpn;
    next[heard.qpn] = heard.number + 1;
  }
}

// No process has the number: its message is lost, and there are no more queries for it.
TEST_F(DatagramQueue, WhatIsForNobodyDoesNotWait) {
  constexpr uint32_t kNobody = PlayedNode::kQpn + 1;
  there.meet();
  send_numbered(kNobody, 0);
  const std::vector<std::byte> asked = there.hear();
  ASSERT_EQ(PlayedNode::kind_of(asked), FrameKind::kQuery);
  const auto query = PlayedNode::head_of<wire::QueryHead>(asked);
  EXPECT_EQ(query.qpn, kNobody);
  there.say(wire::WhereaboutsHead{0, FrameKind::kWhereabouts, {}, kNobody, 0, end().peer.process.node, 0, 0});
  while (!there.is_all_taken()) nothing(side.send_cq.get());
  EXPECT_TRUE(eventually([&] { return lost() == 1; })) << lost();
  // Queries sent before the reply was read; after that no more.
  for (int repeated = 0; !there.hear(100).empty(); ++repeated) ASSERT_LT(repeated, 1000);
  send_numbered(PlayedNode::kQpn, 1);
  const std::vector<Heard> all = hear_all({PlayedNode::kQpn});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].number, 1u);
}

TEST_F(DatagramQueue, WhatHasFoundNoConnectionInTimeIsLost) {
  constexpr uint32_t kMany = 5;
  const int64_t began = now_ns();
  for (uint32_t i = 0; i < kMany; ++i) send_numbered(PlayedNode::kQpn, i);
  EXPECT_TRUE(eventually([&] { return lost() == kMany; })) << lost();
  EXPECT_GE(now_ns() - began, kPatience);
  EXPECT_EQ(completed(), kMany);
}

// At most one connection is requested for each query, however many processes the replies name.
TEST_F(DatagramQueue, AProcessThatIsNotAskedNamesNone) {
  constexpr uint32_t kElsewhere = PlayedNode::kQpn + 1, kNamed = 64;
  there.meet();
  send_numbered(kElsewhere, 0);
  ASSERT_EQ(PlayedNode::kind_of(there.hear()), FrameKind::kQuery);
  for (uint32_t slot = 2; slot < 2 + kNamed; ++slot)
    there.say(wire::WhereaboutsHead{
        0, FrameKind::kWhereabouts, {}, kElsewhere, 1, end().peer.process.node, slot, 0});
  uint32_t asked = 1;
  EXPECT_TRUE(eventually([&] { return there.is_all_taken() && end().calls.load() > 0; }));
  send_numbered(PlayedNode::kQpn, 1);
  for (bool over = false; !over;) {
    const std::vector<std::byte> frame = there.hear();
    ASSERT_FALSE(frame.empty());
    over = PlayedNode::kind_of(frame) == FrameKind::kDatagram;
    if (PlayedNode::kind_of(frame) != FrameKind::kQuery) continue;
    const auto query = PlayedNode::head_of<wire::QueryHead>(frame);
    asked += query.qpn == kElsewhere ? 1 : 0;
    if (query.qpn == PlayedNode::kQpn) there.answer(query);
  }
  EXPECT_LE(end().calls.load(), asked);
}

TEST_F(DatagramQueue, BeyondAMebibyteForAllOfThemIsLost) {
  constexpr uint32_t kDestinations = 10;
  static_assert(kDestinations * kMostForOne > kMost && kDestinations * kMostForOne <= kSendDepth);
  std::set<uint32_t> qpns;
  const int64_t began = now_ns();
  for (uint32_t i = 0; i < kDestinations; ++i) {
    qpns.insert(PlayedNode::kQpn + i);
    for (uint32_t j = 0; j < kMostForOne; ++j) send_numbered(PlayedNode::kQpn + i, j);
  }
  EXPECT_EQ(completed(), kDestinations * kMostForOne);
  EXPECT_TRUE(lost() == kDestinations * kMostForOne - kMost || now_ns() - began >= kPatience) << lost();
  there.meet();
  const bool in_time = now_ns() - began < kPatience;
  const std::vector<Heard> all = hear_all(qpns);
  EXPECT_LE(all.size(), kMost);
  EXPECT_TRUE(all.size() == kMost || !in_time) << all.size();
}

}  // namespace
}  // namespace verbena
