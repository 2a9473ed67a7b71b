// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of a WRITE or READ of up to one chunk with one SGE, and of an atomic on memory that this
// process has mapped as well. It keeps the cost around the copy small. If anything is not as expected, the
// slow path takes the request, as in small_send.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

class HazardGuard;
struct Qp;

inline constexpr uint32_t kSmallRdma = 1024 * 1024;  // bytes: kChunkSize (placement.h)

// Carries `wr` out, its completion included, if it is such a request and nothing is wrong with it. False:
// nothing has happened, except that bytes of a WRITE may have been written; the slow path writes them again,
// or fails. The caller holds send_lock. The QP is in RTS and has no unfinished request. `guard` may be on the
// peer's adapter already; afterwards it is on that adapter, or ended.
bool carry_out_small_rdma(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

}  // namespace verbena
