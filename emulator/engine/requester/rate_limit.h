// SPDX-License-Identifier: BSD-2-Clause
//
// A queue pair with a rate (ibv_modify_qp_rate_limit(3)): what its requests may send now, and what they have sent. The
// arithmetic is that of pacing.h. The caller holds send_lock.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// When the next chunk of the request, of up to `most` bytes, may go: ns of CLOCK_MONOTONIC; 0: now.
int64_t held_back_until(Qp& qp, const SendRequest& request, uint32_t most);

// `bytes` of the request have gone.
void charge_for(Qp& qp, const SendRequest& request, uint32_t bytes);

}  // namespace verbena
