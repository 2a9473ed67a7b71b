// SPDX-License-Identifier: BSD-2-Clause
//
// Destroying an object waits until the program has acknowledged every event of the object that it has read
// (ibv_ack_cq_events(3), ibv_get_async_event(3)). libibverbs counts the acknowledgements in the object.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace verbena::verbs {

// True if `completed` acknowledgements cover `reported` events. The counters wrap around. A program that
// acknowledges too many events must not wait forever.
inline bool all_acknowledged(uint32_t completed, uint32_t reported) {
  return static_cast<int32_t>(completed - reported) >= 0;
}

// Waits until `done()`, on the object's condition variable, which libibverbs signals on every
// acknowledgement.
template <typename Object, typename Done>
void wait_until(Object* object, Done done) {
  pthread_mutex_lock(&object->mutex);
  while (!done()) pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace verbena::verbs
