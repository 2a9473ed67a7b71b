// SPDX-License-Identifier: BSD-2-Clause
//
// Is the queue pair at the other end of the path still the one that this one is connected to, and does it
// take requests?
#pragma once

#include "engine/objects.h"

namespace verbena {

// Finds the responder right or says why not: port_down, peer_gone, peer_not_ready, peer_mismatch. What it has
// found stays in `qp.path` and is compared by one word from then on (PeerPath::responder). The path has an
// adapter; the caller holds send_lock and is holding a hazard guard on it.
VendorError check_path(Qp& qp);

}  // namespace verbena
