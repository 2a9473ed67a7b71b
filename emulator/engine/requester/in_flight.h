// SPDX-License-Identifier: BSD-2-Clause
//
// Which requests are in flight (objects/flight.h), and which of them are done. For the files of this folder;
// others use requester.h. The caller holds send_lock and no hazard guard.
#pragma once

#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/rules/vendor_error.h"

namespace verbena {

// Requests from `number` on are sent again.
void go_back(Qp& qp, uint64_t number);

// Sent, as a whole or in part, and not to be sent again. A reply to an earlier sending changes nothing.
bool is_in_flight(Qp& qp, uint64_t number);

// Requests below `number` have been carried out.
void note_acknowledged(Qp& qp, uint64_t number);

// The request fails with `error` once those before it are finished. Of several refused requests the first
// counts.
void note_refused(Qp& qp, uint64_t number, VendorError error);

// Completes the requests that are done. False: the queue pair has failed.
bool complete_done(Qp& qp);

// In SQD with all finished that has begun: nothing waits any more, not even for space in the transport.
void note_drained(Qp& qp);

}  // namespace verbena
