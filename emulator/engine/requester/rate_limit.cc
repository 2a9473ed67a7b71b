// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/rate_limit.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/rules/pacing.h"
#include "engine/rules/send_rules.h"

namespace verbena {

int64_t held_back_until(Qp& qp, const SendRequest& request, uint32_t most) {
  const bool sends = find_send_operation(request.opcode)->sges != SgeUse::scatter;
  const uint32_t next = sends ? std::min(request.length - request.done, piece_of(qp.pacing, most)) : 0;
  const int64_t at = may_go_at(qp.pacing, bytes_on_wire(next, qp.requester.mtu));
  return qp.pacing.held_until = now_ns() < at ? at : 0;
}

void charge_for(Qp& qp, const SendRequest& request, uint32_t bytes) {
  const bool sends = find_send_operation(request.opcode)->sges != SgeUse::scatter;
  charge(qp.pacing, bytes_on_wire(sends ? bytes : 0, qp.requester.mtu), now_ns());
}

}  // namespace verbena
