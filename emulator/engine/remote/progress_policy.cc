// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/progress_policy.h"

#include <algorithm>

namespace verbena {

int64_t polling_tick(int polled_in_a_row) {
  return kPollingTick << std::min(polled_in_a_row / kSteadyPolls, kMostDoublings);
}

bool was_unscheduled(int64_t last_look, int64_t now, bool is_ticking) {
  return is_ticking && now - last_look > kMissed;
}

ServicePlan plan_service(const ServiceLook& look) {
  const bool keeps_away = look.left_to_program || look.lock_was_taken || look.program_is_quicker;
  ServicePlan plan;
  plan.asleep = !keeps_away;
  plan.arm = !keeps_away && !look.stalled;  // a frame that lies there would wake the service thread at once
  plan.next = look.deadline;
  const auto within = [&](bool condition, int64_t interval) {
    if (condition) plan.next = std::min(plan.next, look.now + interval);
  };
  const int64_t tick = polling_tick(look.polled_in_a_row);
  within(look.lingered || keeps_away, tick);
  within(look.newly_unread || look.lock_was_taken, kSecondLook);
  within(look.receives_posted || look.searches, kPollingTick);
  within(look.stalled, kStalledTick);
  return plan;
}

bool PollShare::program_is_quicker(uint32_t by_polls) {
  constexpr uint32_t kLately = 16, kMost = 4;
  const uint32_t lately_by_polls = by_polls - by_polls_before_;
  if (lately_by_polls + by_service_ < kLately) return false;
  const bool is_quicker = by_service_ * kMost < lately_by_polls;
  by_polls_before_ = by_polls;
  by_service_ = 0;
  return is_quicker;
}

}  // namespace verbena
