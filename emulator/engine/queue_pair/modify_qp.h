// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_modify_qp(3) on behalf of another process, which holds the queue pair as well (xrc_shared_qp.h).
#pragma once

#include "engine/objects/qp.h"

namespace verbena {

// The peer of a queue pair, as it was found on the node.
struct PeerQp {
  uint32_t slot = UINT32_MAX;  // UINT32_MAX: no queue pair has the number
  uint32_t slot_generation = 0;
  uint32_t index = 0;
  uint32_t incarnation = 0;
};

// The queue pair that `attr` connects to. May ask its process and wait, so that the process that modifies
// need not.
PeerQp find_peer(const Qp& qp, const ibv_qp_attr& attr);

// As modify_qp, for an XRC_RECV queue pair, in the service thread. Does not wait. EAGAIN: to be called again.
int modify_for_another(Qp& qp, const ibv_qp_attr& attr, int mask, const PeerQp& peer);

}  // namespace verbena
