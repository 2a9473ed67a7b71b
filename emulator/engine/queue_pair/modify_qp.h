// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_modify_qp(3) on behalf of another process, which holds the queue pair as well (xrc_shared_qp.h).
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// The queue pair that one is connected to, as somebody has found it on the node.
struct PeerQp {
  uint32_t slot = UINT32_MAX;  // UINT32_MAX: nobody has the number
  uint32_t slot_generation = 0;
  uint32_t index = 0;
  uint32_t incarnation = 0;
};

// Whom `attr` connects to. May ask that process, and wait for it; the process that modifies need not do so
// then.
PeerQp find_peer(const Qp& qp, const ibv_qp_attr& attr);

// As modify_qp, for an XRC_RECV queue pair, in the service thread: waits for nobody. EAGAIN: once more,
// please.
int modify_for_another(Qp& qp, const ibv_qp_attr& attr, int mask, const PeerQp& peer);

}  // namespace verbena
