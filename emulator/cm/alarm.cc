// SPDX-License-Identifier: BSD-2-Clause
#include "cm/alarm.h"

#include "adapter/clock.h"

namespace verbena::cm {

void Alarm::set_after_ms(uint64_t milliseconds) {
  cancel();
  place_ = clock_.alarms_.emplace(clock_.now() + static_cast<int64_t>(milliseconds) * 1'000'000, this);
  set_ = true;
}

void Alarm::cancel() {
  if (!set_) return;
  clock_.alarms_.erase(place_);
  set_ = false;
}

int64_t AlarmClock::next() const { return alarms_.empty() ? kEndOfTime : alarms_.begin()->first; }

void AlarmClock::ring_due() {
  const int64_t now = now_();
  while (!alarms_.empty() && alarms_.begin()->first <= now) {
    Alarm* alarm = alarms_.begin()->second;
    alarm->cancel();
    alarm->ring_(alarm->context_);  // may destroy the alarm
  }
}

}  // namespace verbena::cm
