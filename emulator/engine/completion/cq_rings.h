// SPDX-License-Identifier: BSD-2-Clause
//
// The memory of completion queues: the present ring and, after ibv_resize_cq(3), older rings that are not
// consumed yet.
#pragma once

#include <cstdint>

#include "engine/objects/cq.h"
#include "engine/objects/process.h"

namespace verbena {

// log2 of the number of entries in the ring of a CQ for `cqe` completions. `cqe` is at least 1.
uint32_t cq_ring_order(uint32_t cqe);

// Lays out an empty ring of 2^order entries, which is the CQ's from now on: the first one (`generation` 0,
// its SharedCq is filled in otherwise), or the next one. Under Cq::lock. 0 or ENOMEM: nothing has changed.
int make_cq_ring(Cq& cq, uint32_t generation, uint32_t order);

// Frees every ring of a CQ that is not in use any more.
void release_cq_rings(Cq& cq);

}  // namespace verbena
