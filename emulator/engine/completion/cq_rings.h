// SPDX-License-Identifier: BSD-2-Clause
//
// The memory of completion queues: one ring, and while a CQ is being resized (ibv_resize_cq(3)) the ones
// before.
#pragma once

#include <cstdint>

#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// log2 of the number of entries of a CQ that is to hold `cqe`, at least 1.
uint32_t cq_ring_order(uint32_t cqe);

// Lays out an empty ring of 2^order entries. 0 or ENOMEM.
int make_cq_ring(Process& process, SharedCqRing& ring, uint32_t order);

// Gives back every ring of the CQ. Nobody uses it any more.
void release_cq_rings(Cq& cq);

}  // namespace verbena
