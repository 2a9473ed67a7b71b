// SPDX-License-Identifier: BSD-2-Clause
//
// Appending a completion to a CQ, one's own or a peer's, and waking whoever waits for it.
#pragma once

#include <cstdint>

#include "adapter/completion_ring.h"

namespace verbena {

class PeerAdapter;
class Process;

// Raises the CQ's event if it is armed for this completion. To be called after publish_completion. `adapter`
// is where the CQ lies.
void raise_completion_event_slowly(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error);

inline void raise_completion_event(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error) {
  if (cq.channel == 0) return;  // polled only: nobody can arm it to any effect
  raise_completion_event_slowly(cq, adapter, solicited_or_error);
}

// The event of completions that moderation has kept back, if the CQ is still armed. The owner calls.
void raise_kept_back_event(SharedCq& cq, PeerAdapter& adapter);

}  // namespace verbena
