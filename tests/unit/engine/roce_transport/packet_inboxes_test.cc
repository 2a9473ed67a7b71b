// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/packet_inboxes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace verbena {
namespace {

// Several processes pass packets on to this one. Each packet has its time as its only byte.
class PassedOn : public ::testing::Test {
 protected:
  static constexpr size_t kSenders = 3;

  void SetUp() override {
    const std::string name = "verbena-unit-inboxes-" + std::to_string(getpid());
    MessageSocket listener;
    ASSERT_EQ(listener.listen_as(name, kSenders), 0);
    for (MessageSocket& sender : senders_) {
      ASSERT_EQ(sender.connect_to_abstract(name, 10'000), 0);
      MessageSocket inbox;
      ASSERT_EQ(inbox.accept_from(listener), 0);
      inboxes_.add(std::move(inbox));
    }
  }
  void pass_on(size_t sender, uint8_t time) {
    std::array<uint8_t, sizeof(ForwardedPacket) + 1> message{};
    ForwardedPacket way;
    way.read_at = time;
    std::memcpy(message.data(), &way, sizeof way);
    message.back() = time;
    ASSERT_EQ(senders_[sender].send(message), 0);
  }
  // `meanwhile(time)` is called when the packet of that time is taken.
  bool read(int most = 64, const std::function<void(int)>& meanwhile = [](int) {}) {
    return inboxes_.read(most, [&](const ForwardedPacket& way, std::span<const uint8_t> datagram) {
      ASSERT_EQ(datagram.size(), 1u);
      EXPECT_EQ(way.read_at, datagram[0]);
      taken_.push_back(datagram[0]);
      meanwhile(datagram[0]);
    });
  }

  std::array<MessageSocket, kSenders> senders_;
  PacketInboxes inboxes_;
  std::vector<int> taken_;
};

using Times = std::vector<int>;

TEST_F(PassedOn, PacketsAreTakenInTheOrderInWhichTheyWereRead) {
  pass_on(2, 1);
  pass_on(0, 2);
  pass_on(0, 3);
  pass_on(1, 4);
  pass_on(2, 5);
  pass_on(0, 6);
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_, (Times{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_.size(), 6u);
}

TEST_F(PassedOn, PacketsThatComeMeanwhileAreTakenInOrderToo) {
  pass_on(2, 1);
  pass_on(2, 9);
  EXPECT_TRUE(read(64, [&](int time) {
    if (time == 1) pass_on(0, 3), pass_on(1, 2), pass_on(0, 4);
  }));
  EXPECT_EQ(taken_, (Times{1, 2, 3, 4, 9}));
}

TEST_F(PassedOn, WhatIsLeftIsTakenLater) {
  pass_on(1, 2);
  pass_on(0, 1);
  pass_on(0, 4);
  EXPECT_FALSE(read(1));
  pass_on(2, 3);
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_, (Times{1, 2, 3, 4}));
}

TEST_F(PassedOn, AnInboxThatEndsHindersNoOther) {
  pass_on(0, 1);
  senders_[0].close();
  pass_on(1, 2);
  const uint8_t noise = 0;
  ASSERT_EQ(senders_[2].send({&noise, 1}), 0);
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_, (Times{1, 2}));
  EXPECT_NE(senders_[2].send({&noise, 1}), 0) << "the connection is open";
  pass_on(1, 3);
  pass_on(1, 4);
  EXPECT_FALSE(read(1));
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_, (Times{1, 2, 3, 4}));
  senders_[1].close();
  EXPECT_TRUE(read());
  EXPECT_EQ(taken_.size(), 4u);
}

}  // namespace
}  // namespace verbena
