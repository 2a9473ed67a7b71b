// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path: small requests to a peer that is ready (small_send.h, small_rdma.h). If anything is not as
// expected, the requester takes the request, with the same result. The caller holds send_lock.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

namespace verbena {

class HazardGuard;
struct Qp;

// Off: queue pairs that learn their path from now on send each request through the requester. The results are
// the same. For tests, and to find out whether a fault lies in the fast path (VERBENA_FAST_PATH=off).
inline constinit std::atomic<bool> fast_path_enabled{true};

// Carries `wr` out, its completion included, if it may take the fast path. False: to the program nothing has
// happened. The QP is in RTS and has no unfinished request. `guard` may be on the peer's adapter already;
// afterwards it is on that adapter, or ended.
bool take_fast_path(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

// Is `wr` an atomic, for which the guard is to say that a word is changed in place (HazardGuard::announce())?
// nullptr: no.
bool changes_word(const ibv_send_wr* wr);

// Decides again whether requests may take the fast path, after the responder's state word has changed.
void allow_fast_path(Qp& qp);

}  // namespace verbena
