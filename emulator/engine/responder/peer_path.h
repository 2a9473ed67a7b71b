// SPDX-License-Identifier: BSD-2-Clause
//
// Is the responder still the queue pair that the requester was connected to, and ready for requests?
#pragma once

#include "engine/objects/process.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/send_rules.h"

namespace verbena {

// Are the ports of both queue pairs up?
inline bool ports_up(const RequesterContext& requester) {
  return (requester.process->directory().header().ports_down.load(std::memory_order_relaxed) &
          requester.path.ports) == 0;
}

// Checks the responder. none, port_down, peer_gone, peer_not_ready, peer_mismatch. The result is cached in
// `requester.path`; from then on one word is compared (PeerPath::responder_state). The path has an adapter.
// The caller holds a hazard guard on the adapter, and send_lock if the requester is a queue pair of this
// process.
VendorError check_path(RequesterContext& requester);

}  // namespace verbena
