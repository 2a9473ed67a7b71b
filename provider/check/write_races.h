// SPDX-License-Identifier: BSD-2-Clause
//
// Races between RDMA WRITEs and other changes of the same bytes (--enable write-race), seen as the kernel's
// KCSAN sees them: a WRITE is held back for a moment, and its target must not change meanwhile.
#pragma once

#include <infiniband/verbs.h>

#include "check/stack.h"

namespace verbena::check {

// The WRITEs of `list` are about to be posted, and no lock is held. Waits for 100 us if one of them is
// watched.
void watch_targets(ibv_qp* qp, const ibv_send_wr* list, const Stack& stack);

}  // namespace verbena::check
