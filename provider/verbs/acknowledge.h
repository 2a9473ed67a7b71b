// SPDX-License-Identifier: BSD-2-Clause
//
// Destroying an object waits until the program has acknowledged every event of the object that it has read
// (ibv_ack_cq_events(3), ibv_get_async_event(3)). libibverbs counts the acknowledgements in the object. A
// wait of more than a second is logged once: a program that forgets an acknowledgement hangs here for ever.
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <cstdint>
#include <initializer_list>

#include "observe/log.h"

namespace verbena::verbs {

// True if `completed` acknowledgements cover `reported` events. The counters wrap around. A program that
// acknowledges too many events must not wait forever.
inline bool all_acknowledged(uint32_t completed, uint32_t reported) {
  return static_cast<int32_t>(completed - reported) >= 0;
}

struct EventKind {
  const char* name;         // "completion"
  const char* read;         // the function that returned them
  const char* acknowledge;  // the function that is awaited
};
inline constexpr EventKind kCompletionEvents = {"completion", "ibv_get_cq_event", "ibv_ack_cq_events"};
inline constexpr EventKind kAsyncEvents = {"asynchronous", "ibv_get_async_event", "ibv_ack_async_event"};

// Events of one kind: those that the program has read, and where libibverbs counts what it has acknowledged.
struct ReadEvents {
  const EventKind& kind;
  const uint32_t& acknowledged;
  uint32_t read;

  bool all() const { return all_acknowledged(acknowledged, read); }
};

struct ObjectName {
  char text[24];

  ObjectName(const char* type, uint32_t handle) { snprintf(text, sizeof text, "%s %u", type, handle); }
  static ObjectName of_qp(uint32_t number) {
    ObjectName name("", 0);
    snprintf(name.text, sizeof name.text, "QP 0x%06x", number);
    return name;
  }
};

// Waits on the object's condition variable, which libibverbs signals on every acknowledgement. The messages
// begin with `verb` ("ibv_destroy_cq") and `name` ("CQ 5").
template <typename Object>
void await_acknowledgements(Object* object, const char* verb, const ObjectName& name,
                            std::initializer_list<ReadEvents> events) {
  const auto done = [&] {
    for (const ReadEvents& each : events)
      if (!each.all()) return false;
    return true;
  };
  timespec patience;
  clock_gettime(CLOCK_MONOTONIC, &patience);
  ++patience.tv_sec;
  pthread_mutex_lock(&object->mutex);
  while (!done() && pthread_cond_clockwait(&object->cond, &object->mutex, CLOCK_MONOTONIC, &patience) == 0)
    continue;
  for (const ReadEvents& each : events)
    if (!each.all())
      VERBENA_ERROR(event_not_acknowledged,
                    "%s: %s: waits for %u of %u %s events, which %s has returned, to be acknowledged by %s",
                    verb, name.text, each.read - each.acknowledged, each.read, each.kind.name, each.kind.read,
                    each.kind.acknowledge);
  while (!done()) pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace verbena::verbs
