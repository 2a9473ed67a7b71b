// SPDX-License-Identifier: BSD-2-Clause
//
// Work requests that change keys of the requester's own adapter: IBV_WR_BIND_MW and IBV_WR_LOCAL_INV.
//
// A bound window names its region for as long as it is bound, so the region's dereg_mr and rereg_mr answer
// EBUSY. When an invalidation is complete nobody uses the key any more: that of a window of type 1 (bound
// again, or to nothing) waits for hazard guards; one of type 2 serves one requester, whose requests are in
// order.
#pragma once

#include "engine/objects/qp.h"
#include "engine/responder/responder.h"

namespace verbena {

// True: carry_out_locally() is what the operation needs, no peer. Such a request has no list, and no PSN.
constexpr bool is_local(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

// Copies what BIND_MW, LOCAL_INV or SEND_WITH_INV say beside their list out of the program's WR.
void read_memory_wr(const ibv_send_wr& wr, SendRequest* request);

// BIND_MW, LOCAL_INV. Connector holds send_lock and holds no hazard guard. kAck; kBusy: somebody is still
// using what is to change, come again; kLocal: bind_refused.
Response carry_out_locally(Qp& qp, const SendRequest& request);

}  // namespace verbena
