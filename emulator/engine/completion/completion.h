// SPDX-License-Identifier: BSD-2-Clause
//
// The completion event of a CQ, of this process or of a peer. Any thread.
#pragma once

#include <cstdint>

#include "adapter/completion_ring.h"

namespace verbena {

class PeerAdapter;
class Process;

// Raises the CQ's event if the CQ is armed for this completion. Called after publish_completion(). `adapter`:
// where the CQ lies.
void raise_completion_event_slowly(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error);

inline void raise_completion_event(SharedCq& cq, PeerAdapter& adapter, bool solicited_or_error) {
  if (cq.channel == 0) return;  // polled only: arming has no effect
  raise_completion_event_slowly(cq, adapter, solicited_or_error);
}

// Raises the event of completions that moderation has held back, if the CQ is still armed. Called by the
// owner.
void raise_kept_back_event(SharedCq& cq, PeerAdapter& adapter);

}  // namespace verbena
