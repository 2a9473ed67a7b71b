// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of a small SEND. Most messages of most programs are a few dozen bytes to a peer that is
// ready. For those, a few comparisons replace the slow path of requester and responder. If anything is not as
// expected, the slow path takes the request, before anything has changed.
#pragma once

#include <infiniband/verbs.h>

namespace verbena {

class HazardGuard;
struct Qp;

// Carries `wr` out, its completion included, if it is a SEND of up to kBounceSize bytes that can be received
// now. They go into the completion entry, or into the bounce buffer of the receive slot. False: nothing has
// happened. The caller holds send_lock. The QP is in RTS and has no unfinished request. `guard` may be on the
// peer's adapter already; afterwards it is on that adapter, or ended.
bool send_small(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

}  // namespace verbena
