// SPDX-License-Identifier: BSD-2-Clause
//
// Completion moderation (ibv_modify_cq(3)), the owner's side: producers keep the event back until `count`
// completions are there (completion.cc); when they ask for it, the service thread raises it at the end of the
// period.
#pragma once

#include "engine/objects.h"

namespace verbena {

// Begins the period if a producer has asked for it. True: an event waits for its end. Under doorbell_mutex_.
bool begin_moderation(Cq& cq);

}  // namespace verbena
