// SPDX-License-Identifier: BSD-2-Clause
//
// Is the responder's queue pair still the one that the requester's is connected to, and does it take requests?
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

// Finds the responder right or says why not: port_down, peer_gone, peer_not_ready, peer_mismatch. What was found stays in
// `requester.path`; from then on one word is compared (PeerPath::responder). The path has an adapter. The
// caller holds send_lock, if the requester is a queue pair of this process, and a hazard on the adapter.
VendorError check_path(RequesterContext& requester);

}  // namespace verbena
