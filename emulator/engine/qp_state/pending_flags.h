// SPDX-License-Identifier: BSD-2-Clause
//
// What peers report about a queue pair: SharedQp::pending_flags.
#pragma once

#include <atomic>

#include "engine/objects/qp.h"

namespace verbena {

// Acts on what peers have reported in SharedQp::pending_flags: the responder's errors, COMM_EST, and eager
// data to scatter. Takes send_lock. Called by the service thread when it is kicked, and by every verb on the
// QP before anything else. So no verb sees a state that a completed request has already ended.
void act_on_pending_flags_slowly(Qp& qp);
inline void act_on_pending_flags(Qp& qp) {
  if (qp.shared->pending_flags.load(std::memory_order_acquire) != 0) act_on_pending_flags_slowly(qp);
}

}  // namespace verbena
