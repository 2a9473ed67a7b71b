// SPDX-License-Identifier: BSD-2-Clause
//
// Completion moderation (ibv_modify_cq(3)), the owner's side: producers keep the event back until `count`
// completions are there (completion.cc); when they ask for it, the service thread raises it at the end of the
// period.
#pragma once

#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// Begins the period if a producer has asked for it. True: an event waits for its end. Under Process::serving_mutex.
bool begin_moderation(Cq& cq);

// Raises the events whose period is over. Answers when the next is due, ns; kEndOfTime: none waits. The service thread.
int64_t raise_moderated_events(Process& process);

}  // namespace verbena
