// SPDX-License-Identifier: BSD-2-Clause
//
// The fast path of a WRITE or READ of up to 64 KiB, with one element: what it takes is next to nothing beside
// the kernel's copy, so that what stands around the copy is to be little, too. Whatever is not as expected is
// left to the slow path, as small_send.h does it.
#pragma once

#include "engine/objects/qp.h"
#include "fabric/hazards.h"

namespace verbena {

inline constexpr uint32_t kSmallRdma = 64 * 1024;  // bytes: one chunk (placement.h)

// Carries `wr` out, its completion included, if it is such a one and nothing is wrong with it. False: nothing
// has happened, but that bytes of a WRITE may be there already, which the slow path writes again or
// fails for. The caller holds send_lock; the QP is in RTS and has no request under way. `guard` may be to the
// peer's adapter already; afterwards it is, or is none.
bool carry_out_small_rdma(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard);

}  // namespace verbena
