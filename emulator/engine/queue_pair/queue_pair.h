// SPDX-License-Identifier: BSD-2-Clause
//
// Creation and destruction: what all queue pairs have in common, whichever process holds a handle.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// Gives the queue pair its place in the tables; takes `qp` over, which is gone when this fails. ENOMEM.
// `number`: one that it has already, and that the caller tells the node of; 0: a new one.
int set_up_qp(Qp* qp, const ibv_qp_init_attr& attr, uint32_t number = 0);

// On return nobody is at work on the queue pair, nothing of it is to be seen, and no more events are raised.
void take_down_qp(Qp& qp);

// Then: gives back what it held.
void free_qp(Qp* qp);

// The transport of a queue pair that is not reached by frames, or not connected.
Transport& transport_without_frames(ibv_qp_type type);

}  // namespace verbena
