// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of a small SEND. Most messages of most programs are a few dozen bytes to a peer that is
// ready: for those a few comparisons replace the requester's and the responder's slow path. Whatever is
// not as expected is left to that course, before anything has been changed.
#pragma once

#include "engine/objects/qp.h"
#include "fabric/hazards.h"

namespace verbena {

// Carries `wr` out, its completion included, if it is a SEND of up to kCqeInlineSize bytes that nothing keeps
// from being received now. False: nothing has happened. The caller holds send_lock; the QP is in RTS and has
// no request under way. `guard` may be to the peer's adapter already; afterwards it is, or is none.
bool send_small(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

}  // namespace verbena
