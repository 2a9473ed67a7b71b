// SPDX-License-Identifier: BSD-2-Clause
//
// From the connection manager's events to those that the program fetches.
#pragma once

#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// The handler of every id; its context is the Context (ucma_event_handler). A connection request becomes a
// context that the program learns of with the event, unless the listener's backlog is used up: then it is
// refused. Of an id that the program has not accepted, nothing is told.
bool on_event(void* context, const cm::Event& event);

// What could happen to the id while the program was accepting it, told or forgotten. Under the mutex.
void settle_accept(Context& context, bool accepted, uint64_t uid);

}  // namespace verbena::rdma_cm
