// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/answer_limit.h"

#include <gtest/gtest.h>

namespace verbena::packets {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::array<uint8_t, 16> ipv4(uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
}

uint32_t allowed(AnswerLimit& limit, const std::array<uint8_t, 16>& address, int64_t now, uint32_t wanted) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < wanted; ++i) count += limit.allow(address, now);
  return count;
}

TEST(AnswerLimit, AllowsABurst) {
  AnswerLimit limit({10, 100});
  EXPECT_EQ(allowed(limit, ipv4(1), kSecond, 1000), 10u);
}

TEST(AnswerLimit, AllowsItsRateOverTime) {
  AnswerLimit limit({10, 100});
  uint32_t count = 0;
  for (int64_t now = 0; now < 10 * kSecond; now += kSecond / 1000) count += limit.allow(ipv4(1), now);
  EXPECT_GE(count, 1000u);
  EXPECT_LE(count, 1010u);
}

TEST(AnswerLimit, GivesNoMoreAfterSilenceThanABurst) {
  AnswerLimit limit({10, 100});
  allowed(limit, ipv4(1), kSecond, 1000);
  EXPECT_EQ(allowed(limit, ipv4(1), 100 * kSecond, 1000), 10u);
}

TEST(AnswerLimit, CountsSourcesApart) {
  AnswerLimit limit({10, 100});
  EXPECT_EQ(allowed(limit, ipv4(1), kSecond, 1000), 10u);
  EXPECT_EQ(allowed(limit, ipv4(2), kSecond, 1000), 10u);
}

TEST(AnswerLimit, TakesAnIpv6NetworkForOneSource) {
  AnswerLimit limit({10, 100});
  std::array<uint8_t, 16> address{0xfd, 1};
  uint32_t count = 0;
  for (uint8_t i = 0; i < 200; ++i) {
    address[15] = i;
    count += limit.allow(address, kSecond);
  }
  EXPECT_EQ(count, 10u);
}

TEST(AnswerLimit, BoundsAllSourcesTogether) {
  AnswerLimit limit({10, 100});
  std::array<uint8_t, 16> address = ipv4(0);
  uint32_t count = 0;
  for (uint32_t i = 0; i < 100'000; ++i) {
    address[13] = static_cast<uint8_t>(i >> 16);
    address[14] = static_cast<uint8_t>(i >> 8);
    address[15] = static_cast<uint8_t>(i);
    count += limit.allow(address, kSecond);
  }
  EXPECT_EQ(count, 10u * AnswerLimit::kAllTogether);
}

TEST(AnswerLimit, ARefusalCostsNothing) {
  int64_t clock = 0;
  const AnswerRate rate{1, 10};
  EXPECT_TRUE(take_answer(rate, kSecond, &clock));
  const int64_t before = clock;
  EXPECT_FALSE(take_answer(rate, kSecond, &clock));
  EXPECT_EQ(clock, before);
  EXPECT_TRUE(take_answer(rate, kSecond + kSecond / 10, &clock));
}

}  // namespace
}  // namespace verbena::packets
