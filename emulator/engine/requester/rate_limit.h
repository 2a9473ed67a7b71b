// SPDX-License-Identifier: BSD-2-Clause
//
// A queue pair with a rate (ibv_modify_qp_rate_limit(3)): when it may send. The arithmetic is in pacing.h.
// The caller holds send_lock.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// When the next chunk of the request, of up to `most` bytes, may be sent: ns of CLOCK_MONOTONIC; 0: now.
int64_t held_back_until(Qp& qp, const SendRequest& request, uint32_t most);

// `bytes` of the request have been sent.
void charge_for(Qp& qp, const SendRequest& request, uint32_t bytes);

}  // namespace verbena
