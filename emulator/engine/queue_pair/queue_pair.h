// SPDX-License-Identifier: BSD-2-Clause
//
// Creation and destruction: what all queue pairs have in common, whichever process holds a handle.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// Enters the queue pair into the tables. Owns `qp` from then on, and deletes it on failure. ENOMEM. `number`:
// its existing number, which the caller publishes; 0: a new one.
int set_up_qp(Qp* qp, const ibv_qp_init_attr& attr, uint32_t number = 0);

// On return no thread or peer uses the queue pair, no completion of it can be polled, and no event is raised
// any more.
void take_down_qp(Qp& qp);

// After that: frees its resources.
void free_qp(Qp* qp);

// The transport of a queue pair that is not reached by frames, or not connected.
Transport& transport_without_frames(ibv_qp_type type);

}  // namespace verbena
