// SPDX-License-Identifier: BSD-2-Clause
//
// Completion moderation (ibv_modify_cq(3)), the owner's side. Producers hold the event back until `count`
// completions are there (completion.cc). If they ask for it, the service thread raises the event at the end
// of the period.
#pragma once

#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// Begins the period if a producer has asked for it. True: an event waits for the end of a period. Under
// Process::serving_mutex.
bool begin_moderation(Cq& cq);

// Raises the events whose period is over. Returns when the next one is due, ns; kEndOfTime: none. Called by
// the service thread.
int64_t raise_moderated_events(Process& process);

}  // namespace verbena
