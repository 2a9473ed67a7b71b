// SPDX-License-Identifier: BSD-2-Clause
//
// What observers of this node learn of requests to another one: the responder's decision is observed there,
// and here its reply.
#pragma once

#include "engine/objects/qp.h"
#include "engine/objects/transport.h"
#include "engine/rules/reply.h"

namespace verbena {

struct SendRequest;

void tell_sent_away(Observer& observer, Qp& qp, const SendRequest& request, Reply reply, VendorError error,
                    uint8_t rnr_timer);

// Tells what has become of the request, if it has gone to another node. The PSN of `qp` is that of the
// request, and the memory of the request still the adapter's: it is not completed yet. The caller holds
// send_lock and no hazard guard.
inline void tell_if_sent_away(Qp& qp, const SendRequest& request, Reply reply, VendorError error,
                              uint8_t rnr_timer = 0) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    if (qp.transport->leads_out()) tell_sent_away(*seen, qp, request, reply, error, rnr_timer);
}

}  // namespace verbena
