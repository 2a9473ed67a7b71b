// SPDX-License-Identifier: BSD-2-Clause
//
// Completion moderation (ibv_modify_cq(3)), the owner's side. Producers hold the event back until `count`
// completions are there (completion.cc). If they ask for it, the service thread raises the event at the end
// of the period.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// Begins the period if a producer has asked for it. True: the period has begun in this call. Under
// Process::serving_mutex.
bool begin_moderation(Cq& cq);

// Raises the events of those CQs of `indices` whose period is over, and takes these CQs out. Returns when the
// next one is due, ns; kEndOfTime: none. Called by the service thread.
int64_t raise_moderated_events(Process& process, std::vector<uint32_t>& indices);

}  // namespace verbena
