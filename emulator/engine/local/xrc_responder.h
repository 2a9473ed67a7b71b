// SPDX-License-Identifier: BSD-2-Clause
//
// An XRC_RECV queue pair may go over from one process to another while requesters are connected to it
// (xrc_shared_qp.h).
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// The responder's owner has ended. If another of its holders has taken it over, the path leads there from now
// on (xrc_shared_qp.h); if they have still to notice, they are woken. True: there is, or will be, somebody.
// The caller holds send_lock and holds no hazard guard.
bool follow_responder(Qp& qp);

}  // namespace verbena
