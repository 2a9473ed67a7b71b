// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/progress_policy.h"

#include <gtest/gtest.h>

#include <functional>

#include "adapter/clock.h"

namespace verbena {
namespace {

constexpr int64_t kNow = 1'000'000'000'000;

struct PolicyRow {
  const char* name;
  std::function<void(ServiceLook&)> set;
  bool arm, asleep;
  int64_t after;  // ns from kNow; kEndOfTime: only when woken
};

const PolicyRow kPolicyRows[] = {
    {"Nothing", [](ServiceLook&) {}, true, true, kEndOfTime},
    {"Deadline", [](ServiceLook& l) { l.deadline = kNow + 7; }, true, true, 7},
    {"ProgramPolled", [](ServiceLook& l) { l.program_polled = true, l.polled_in_a_row = 1; }, true, true, kEndOfTime},
    {"LeftToTheProgram",
     [](ServiceLook& l) { l.program_polled = l.left_to_program = true, l.polled_in_a_row = 1; }, false, false,
     kPollingTick},
    {"LeftToItForLong",
     [](ServiceLook& l) { l.program_polled = l.left_to_program = true, l.polled_in_a_row = kSteadyPolls; }, false, false,
     2 * kPollingTick},
    {"LeftToItForVeryLong",
     [](ServiceLook& l) { l.program_polled = l.left_to_program = true, l.polled_in_a_row = 1000; }, false, false,
     kPollingTick << kMostDoublings},
    {"LeftToItButUnread",
     [](ServiceLook& l) { l.program_polled = l.left_to_program = l.newly_unread = true, l.polled_in_a_row = 1; }, false,
     false, kSecondLook},
    {"LeftToItBeforeADeadline",
     [](ServiceLook& l) { l.program_polled = l.left_to_program = true, l.deadline = kNow + 9, l.polled_in_a_row = 1; },
     false, false, 9},
    {"LockWasTaken", [](ServiceLook& l) { l.lock_was_taken = true; }, false, false, kSecondLook},
    {"ProgramIsQuicker",
     [](ServiceLook& l) { l.program_polled = l.program_is_quicker = true, l.polled_in_a_row = 1; }, false, false,
     kPollingTick},
    {"Stalled", [](ServiceLook& l) { l.stalled = true; }, false, true, kStalledTick},
    {"Lingered", [](ServiceLook& l) { l.lingered = true; }, true, true, kPollingTick},
    {"LingeredWhilePolled",
     [](ServiceLook& l) { l.lingered = l.program_polled = true, l.polled_in_a_row = 2 * kSteadyPolls; }, true, true,
     4 * kPollingTick},
    {"ReceivesPosted", [](ServiceLook& l) { l.receives_posted = true; }, true, true, kPollingTick},
    {"Searches", [](ServiceLook& l) { l.searches = true; }, true, true, kPollingTick},
    {"StalledAndSearches", [](ServiceLook& l) { l.stalled = l.searches = true; }, false, true, kStalledTick},
};

class ServicePolicy : public ::testing::TestWithParam<PolicyRow> {};
INSTANTIATE_TEST_SUITE_P(Looks, ServicePolicy, ::testing::ValuesIn(kPolicyRows),
                         [](const auto& row) { return row.param.name; });

TEST_P(ServicePolicy, Plans) {
  ServiceLook look;
  look.now = kNow;
  look.deadline = kEndOfTime;
  GetParam().set(look);
  const ServicePlan plan = plan_service(look);
  EXPECT_EQ(plan.arm, GetParam().arm);
  EXPECT_EQ(plan.asleep, GetParam().asleep);
  EXPECT_EQ(plan.next, GetParam().after == kEndOfTime ? kEndOfTime : kNow + GetParam().after);
}

TEST(PollingTick, GrowsWithThePollsInARowToEightTimes) {
  EXPECT_EQ(polling_tick(0), kPollingTick);
  EXPECT_EQ(polling_tick(kSteadyPolls - 1), kPollingTick);
  EXPECT_EQ(polling_tick(kSteadyPolls), 2 * kPollingTick);
  EXPECT_EQ(polling_tick(3 * kSteadyPolls), 8 * kPollingTick);
  EXPECT_EQ(polling_tick(1'000'000), 8 * kPollingTick);
}

TEST(ServiceThread, WasUnscheduledOnlyIfItShouldHaveCome) {
  EXPECT_FALSE(was_unscheduled(kNow, kNow + kMissed, true));
  EXPECT_TRUE(was_unscheduled(kNow, kNow + kMissed + 1, true));
  EXPECT_FALSE(was_unscheduled(kNow, kNow + 10 * kMissed, false));
}

TEST(PollShare, IsNotJudgedByAFew) {
  PollShare share;
  EXPECT_FALSE(share.program_is_quicker(15));
  EXPECT_TRUE(share.program_is_quicker(16));
}

TEST(PollShare, ProgramIsQuickerIfItTakesMoreThanFourTimesAsMuch) {
  PollShare share;
  for (int i = 0; i < 4; ++i) share.note_service();
  EXPECT_FALSE(share.program_is_quicker(16));
  for (int i = 0; i < 4; ++i) share.note_service();
  EXPECT_TRUE(share.program_is_quicker(16 + 17)) << "counted from the last judgement";
}

TEST(PollShare, CountsPollsAcrossTheWrapOfTheirNumber) {
  PollShare share;
  EXPECT_TRUE(share.program_is_quicker(UINT32_MAX - 3));
  EXPECT_TRUE(share.program_is_quicker(16)) << "20 more";
}

TEST(EmptyPolls, AreLongOnlyAfterTheTimeAndOncePerManyPolls) {
  EmptyPolls polls;
  for (uint32_t i = 1; i < EmptyPolls::kPollsPerLook; ++i) EXPECT_FALSE(polls.note()) << i;
  ASSERT_TRUE(polls.note());
  EXPECT_FALSE(polls.is_long(kNow));
  for (uint32_t i = 1; i < EmptyPolls::kPollsPerLook; ++i) EXPECT_FALSE(polls.note());
  ASSERT_TRUE(polls.note());
  EXPECT_FALSE(polls.is_long(kNow + EmptyPolls::kLongPolling));
  EXPECT_TRUE(polls.is_long(kNow + EmptyPolls::kLongPolling + 1));
}

TEST(EmptyPolls, BeginAgainAfterSomethingHasCome) {
  EmptyPolls polls;
  for (uint32_t i = 0; i < EmptyPolls::kPollsPerLook; ++i) polls.note();
  polls.is_long(kNow);
  polls.reset();
  for (uint32_t i = 0; i < EmptyPolls::kPollsPerLook; ++i) polls.note();
  EXPECT_FALSE(polls.is_long(kNow + 100 * EmptyPolls::kLongPolling));
}

}  // namespace
}  // namespace verbena
