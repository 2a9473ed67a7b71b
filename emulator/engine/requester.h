// SPDX-License-Identifier: BSD-2-Clause
//
// The send queue at work: takes requests in order, carries each out against the peer, completes it.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "engine/objects.h"

namespace verbena {

// Carries out what is queued until the queue is empty or something has to be waited for. The caller holds
// send_lock. `from_service`: the service thread calls, since nobody polled for a while; the peer is then asked
// to wake it. Returns when to come again at the latest: ns of CLOCK_MONOTONIC, kEndOfTime if nothing waits.
int64_t progress_send_queue(Qp& qp, bool from_service);

// Appends the completion of `request` to the QP's own send CQ, if it is signaled or has failed.
void complete_send(Qp& qp, const SendRequest& request, VendorError error);

// Finds the memory behind the request's list; `ranges` has room for PeerAdapter::kMaxRanges. The caller is on a visit.
VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request, iovec* ranges,
                             size_t* count);

}  // namespace verbena
