// SPDX-License-Identifier: BSD-2-Clause
//
// Posting to the send queue (ibv_post_send(3)). The caller holds send_lock.
#pragma once

#include <infiniband/verbs.h>

namespace verbena {

class HazardGuard;
struct Qp;

// Posts the list. errno values as post_send (emulator.h); *bad_wr is then the first request that was not
// posted. `guard`: the caller's hazard guard on the peer's adapter, which may be empty. It may guard another
// adapter afterwards.
int post_list(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr, HazardGuard& guard);

}  // namespace verbena
