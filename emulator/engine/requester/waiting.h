// SPDX-License-Identifier: BSD-2-Clause
//
// How the request at the head of the send queue waits, until when, and how it fails. For the files of this
// folder; others use requester.h. The caller holds send_lock and no hazard guard.
#pragma once

#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/requester/requester.h"
#include "engine/rules/vendor_error.h"

namespace verbena {

// ns. While requests wait and the program does not poll, the service thread looks this often.
inline constexpr int64_t kShortTick = 200'000;

// The request at the head of the send queue fails: it completes with an error, and the queue pair goes to
// ERR, or to SQE.
Step fail_request(Qp& qp, const SendRequest& request, VendorError error);

// The request at the head of the send queue waits for `what`. It fails for `reason` `patience_ns` after the
// first such call.
Step wait_for(Qp& qp, const SendRequest& request, Waiting what, VendorError reason, uint64_t patience_ns);

// Something is in flight, or is about to be. The deadline runs from the first such call on.
void wait_in_flight(Qp& qp, Waiting what, VendorError reason);

// There was progress, and the request still waits.
Step wait_after_progress(Qp& qp);

// A request has found no receive request at the peer. For `verbena status`.
void note_rnr(Qp& qp);

// When a request that waits is tried again. `asked`: the peer has been asked to wake this process, and has
// had time to notice.
int64_t retry_at(const Qp& qp, bool from_service, bool asked);

}  // namespace verbena
