// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "engine/objects/cq.h"

namespace verbena {

// Scatters what has landed in the receive slots and waits to be polled from `cq`.
void scatter_eager(Cq& cq);

}  // namespace verbena
