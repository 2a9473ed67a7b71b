// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "engine/objects/cq.h"

namespace verbena {

// Copies the eager data of completions in `cq` that are not polled yet to the buffers of their receive WQEs.
// Takes Cq::lock.
void scatter_eager(Cq& cq);

}  // namespace verbena
