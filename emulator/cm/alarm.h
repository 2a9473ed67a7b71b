// SPDX-License-Identifier: BSD-2-Clause
//
// Timers. Not thread-safe: the service's lock guards them. The caller passes the time, so that tests can use
// their own clock.
#pragma once

#include <cstdint>
#include <map>

namespace verbena::cm {

class AlarmClock;

// Fires once after each set(), unless it is set again or cancelled first. Its destructor cancels it.
class Alarm {
 public:
  using Ring = void (*)(void* context);
  Alarm(AlarmClock& clock, Ring ring, void* context) : clock_(clock), ring_(ring), context_(context) {}
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm() { cancel(); }

  void set_after_ms(uint64_t milliseconds);
  void cancel();
  bool is_set() const { return set_; }

 private:
  friend class AlarmClock;
  AlarmClock& clock_;
  Ring ring_;
  void* context_;
  bool set_ = false;
  std::multimap<int64_t, Alarm*>::iterator place_;
};

class AlarmClock {
 public:
  using Now = int64_t (*)();  // nanoseconds
  explicit AlarmClock(Now clock) : now_(clock) {}

  int64_t now() const { return now_(); }
  int64_t next() const;  // when the next alarm fires; kEndOfTime (adapter/clock.h): none
  void ring_due();       // fires all alarms whose time has come

 private:
  friend class Alarm;
  Now now_;
  std::multimap<int64_t, Alarm*> alarms_;
};

}  // namespace verbena::cm
