// SPDX-License-Identifier: BSD-2-Clause
#include "faults/plan.h"

#include <gtest/gtest.h>

#include "faults/draw.h"

namespace verbena::faults {
namespace {

TEST(FaultPlan, IsReadAsItWasWritten) {
  Plan plan;
  plan.seed = UINT64_MAX;
  plan.only_legal = true;
  plan.link = {25'000'000'000, 2'000};
  Rule rule;
  rule.what = Fault::kFail;
  rule.object = 3;
  rule.opcode = 2;
  rule.nth = 100;
  rule.every = 7;
  rule.probability = 0.25;
  rule.times = 9;
  rule.from_ns = 1;
  rule.until_ns = 2;
  rule.least_ns = 3;
  rule.most_ns = 4;
  rule.vendor_err = 0x93;
  plan.rules = {rule, Rule{}};
  Plan read;
  ASSERT_TRUE(parse_plan(to_text(plan), &read)) << to_text(plan);
  EXPECT_EQ(read, plan);
}

TEST(FaultPlan, RefusesWhatIsNone) {
  Plan plan;
  for (const char* text :
       {"", "1", "1 0 0", "1 0 0 0;", "1 0 0 0;lose", "1 0 0 0;beauty 1 1 1 1 1 1 1 1 1 1 1",
        "1 0 0 0;lose 1 1 1 1 1 1 1 1 1 1 x", "1 0 0 0;lose 4294967296 1 1 1 1 1 1 1 1 1 1", "x 0 0 0"})
    EXPECT_FALSE(parse_plan(text, &plan)) << text;
}

TEST(FaultPlan, OfASeedIsAlwaysTheSame) {
  for (uint64_t seed = 0; seed < 100; ++seed) EXPECT_EQ(chaos(seed), chaos(seed));
  EXPECT_NE(chaos(1), chaos(2));
}

TEST(FaultPlan, OfASeedHasOnlyWhatACorrectProgramSurvives) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Plan plan = chaos(seed);
    EXPECT_TRUE(plan.only_legal);
    for (const Rule& rule : plan.rules)
      EXPECT_TRUE(rule.what != Fault::kFail && rule.what != Fault::kDie && rule.what != Fault::kRefuse)
          << seed;
    Plan read;
    EXPECT_TRUE(parse_plan(to_text(plan), &read)) << to_text(plan);
  }
}

TEST(FaultDraw, IsWithinItsBounds) {
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t drawn = draw({1, i});
    EXPECT_GE(fraction(drawn), 0);
    EXPECT_LT(fraction(drawn), 1);
    EXPECT_GE(between(10, 20, drawn), 10u);
    EXPECT_LE(between(10, 20, drawn), 20u);
  }
  EXPECT_EQ(between(5, 5, 77), 5u);
}

}  // namespace
}  // namespace verbena::faults
