// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of a SEND that is too long for small_send.h, with little around the copy: into the receive
// buffer if this process has mapped it (responder/mapped_bytes.h), otherwise into the bounce ring
// (adapter/bounce_ring.h). If anything is not as expected, the slow path takes the request, as in
// small_send.h.
#pragma once

#include <infiniband/verbs.h>

namespace verbena {

class HazardGuard;
struct Qp;

// Carries `wr` out, its completion included, if it is a SEND of more than kBounceSize bytes, and of one chunk
// at most (placement.h), with one SGE, that can be received now, into one SGE that is mapped here or through
// the bounce ring. False: nothing has happened, except that a WQE of the SRQ may have been taken, and bytes
// written into the buffer of the receive request; the slow path goes on with that WQE, and writes the bytes
// again, or fails. The caller holds send_lock. The QP is in RTS and has no unfinished request. `guard` may be
// on the peer's adapter already; afterwards it is on that adapter, or ended.
bool send_long(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

}  // namespace verbena
