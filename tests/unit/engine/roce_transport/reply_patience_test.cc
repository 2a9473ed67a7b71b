// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/reply_patience.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

// Opportunities that are left out until acknowledgements wait again.
uint32_t left_out(ReplyPatience& patience) {
  uint32_t count = 0;
  while (!patience.begin(1)) ++count;
  return count;
}

TEST(ReplyPatience, WaitsAtFirst) {
  ReplyPatience patience;
  EXPECT_FALSE(patience.is_waiting());
  EXPECT_TRUE(patience.begin(1000));
  EXPECT_TRUE(patience.is_waiting());
  EXPECT_EQ(patience.until(), 1000 + ReplyPatience::kLength);
}

TEST(ReplyPatience, WaitsEachTimeWhileTheProgramReplies) {
  ReplyPatience patience;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(left_out(patience), 0u);
    patience.end(false);
    EXPECT_FALSE(patience.is_waiting());
  }
}

TEST(ReplyPatience, WaitsEverMoreRarelyInVain) {
  ReplyPatience patience;
  uint32_t before = 0;
  for (int i = 0; i < 20; ++i) {
    const uint32_t count = left_out(patience);
    EXPECT_TRUE(i == 0
                    ? count == 0
                    : count == std::max(2 * before, ReplyPatience::kFewest) || count == ReplyPatience::kMost);
    before = count;
    patience.end(true);
  }
  EXPECT_EQ(before, ReplyPatience::kMost);
  EXPECT_EQ(left_out(patience), ReplyPatience::kMost);
  patience.end(false);
  EXPECT_EQ(left_out(patience), 0u);
}

}  // namespace
}  // namespace verbena
