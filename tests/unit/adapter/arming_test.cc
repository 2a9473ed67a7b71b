// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/arming.h"

#include <gtest/gtest.h>

namespace verbena {
namespace {

class ArmingTest : public ::testing::Test {
 protected:
  Armed state() const { return Arming::unpack(word).state; }
  std::atomic<uint32_t> word{Arming{Armed::kNo, 0}.pack()};
  uint32_t first = 0, second = 0, third = 0;
};

TEST_F(ArmingTest, OneOfThoseThatFindItArmedRaises) {
  EXPECT_FALSE(begin_raising(word, true, &first));
  arm(word, Armed::kNext);
  EXPECT_TRUE(begin_raising(word, false, &first));
  end_raising(word, first);
  EXPECT_FALSE(begin_raising(word, true, &second));
}

TEST_F(ArmingTest, ForSolicitedOnesTheOthersDoNot) {
  arm(word, Armed::kSolicited);
  EXPECT_FALSE(begin_raising(word, false, &first));
  EXPECT_TRUE(begin_raising(word, true, &first));
}

TEST_F(ArmingTest, ForEverythingItStaysSo) {
  arm(word, Armed::kNext);
  arm(word, Armed::kSolicited);
  EXPECT_EQ(state(), Armed::kNext);
}

TEST_F(ArmingTest, ArmedMeanwhileItStaysArmed) {
  arm(word, Armed::kNext);
  ASSERT_TRUE(begin_raising(word, true, &first));
  arm(word, Armed::kSolicited);
  end_raising(word, first);
  EXPECT_EQ(state(), Armed::kSolicited);
}

TEST_F(ArmingTest, AProducerThatDiesBeforeTheEventIsReplaced) {
  arm(word, Armed::kNext);
  ASSERT_TRUE(begin_raising(word, true, &first));
  EXPECT_TRUE(begin_raising(word, true, &second));
  end_raising(word, second);
  EXPECT_EQ(state(), Armed::kNo);
}

// The first thread has written its event, and the owner has read it, before the first thread runs again.
TEST_F(ArmingTest, AProducerThatDiesBeforeTheEventIsReplacedThoughAnotherEndsLate) {
  arm(word, Armed::kNext);
  ASSERT_TRUE(begin_raising(word, true, &first));
  arm(word, Armed::kNext);
  ASSERT_TRUE(begin_raising(word, true, &second));
  end_raising(word, first);
  EXPECT_TRUE(begin_raising(word, true, &third)) << "the second is dead, and nobody would write its event";
}

}  // namespace
}  // namespace verbena
