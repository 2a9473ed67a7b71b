// SPDX-License-Identifier: BSD-2-Clause
//
// Work requests that change keys of the requester's own adapter: IBV_WR_BIND_MW and IBV_WR_LOCAL_INV.
//
// While a window is bound, dereg_mr and rereg_mr of its region return EBUSY. When an invalidation is complete
// no requester uses the key any more. For a window of type 1 (bound again, or unbound) it waits for hazard
// guards. A window of type 2 serves one requester, and the requests of that requester are in order.
#pragma once

#include <infiniband/verbs.h>

#include "engine/responder/responder.h"

namespace verbena {

struct Qp;
struct SendRequest;

// Is the operation carried out by carry_out_locally(), without a peer? Such a request has no SGEs and no PSN.
constexpr bool is_local(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

// Copies the fields of BIND_MW, LOCAL_INV or SEND_WITH_INV, other than the SGEs, out of the program's WR.
void read_memory_wr(const ibv_send_wr& wr, SendRequest* request);

// Carries out BIND_MW or LOCAL_INV. The caller holds send_lock and no hazard guard. kAck; kBusy: a requester
// still uses the key, to be called again; kLocal: bind_refused.
Response carry_out_locally(Qp& qp, const SendRequest& request);

}  // namespace verbena
