// SPDX-License-Identifier: BSD-2-Clause
//
// Succession of an XRC_RECV queue pair (xrc_shared_qp.h), as connected requesters see it.
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// The owner of the responder has ended. If it has a new owner, the path leads there from now on. If not, the
// other holders are woken. True: there is a new owner, or there will be one. The caller holds send_lock and
// no hazard guard.
bool follow_responder(Qp& qp);

}  // namespace verbena
