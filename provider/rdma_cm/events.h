// SPDX-License-Identifier: BSD-2-Clause
//
// Converts events of the connection manager to those that the program fetches.
#pragma once

#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// The handler of every id; its context is the Context (ucma_event_handler). A connection request becomes a
// new context, which the program learns with the event. If the backlog of the listener is full, the request
// is refused. Events of an id that the program has not accepted are not reported.
bool on_event(void* context, const cm::Event& event);

// Reports or drops the events that came while the program accepted the id. Under the mutex.
void settle_accept(Context& context, bool accepted, uint64_t uid);

}  // namespace verbena::rdma_cm
