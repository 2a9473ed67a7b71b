// SPDX-License-Identifier: BSD-2-Clause
//
// The requester: one state machine for the send queues of all queue pair types and all transports. It decides which request
// may start, waits, is sent again, is fenced, drained, timed out, fails and completes. Transports carry requests
// (transport.h) and report here.
//
// All functions are called with send_lock of the queue pair held, and without a hazard unless they say otherwise.
#pragma once

#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/objects/transport.h"
#include "engine/rules/psn.h"

namespace verbena {

// ---- the program and the scheduler ----

enum class Step : uint8_t { kFinished, kFailed, kWaits };

// Takes `request` as far as that is possible without waiting. It is the queue pair's only unfinished request, and its
// transport is synchronous: the request need not be kept unless the answer is kWaits.
Step start_alone(Qp& qp, SendRequest& request);

// A request has been kept in the send queue of a queue pair in RTS: starts it, or leaves it to the scheduler.
void start_kept(Qp& qp);

// Carries out what is queued until the queue is empty or something has to be waited for. `from_service`: the service
// thread calls, since the program has not polled for a while; then the peer is asked to wake it. Answers when to come again
// at the latest: ns of CLOCK_MONOTONIC, kEndOfTime: not before something comes from the peer.
int64_t progress_send_queue(Qp& qp, bool from_service);

// Fails what has waited too long. Answers when to look again, ns; kEndOfTime: nothing is in flight.
int64_t check_deadline(Qp& qp, int64_t now);

// The queue pair has a path from here on: nothing is in flight.
void begin_flight(Qp& qp);

// ---- transports ----

// The request at the head of the send queue has been carried out: completes it.
void complete_request(Qp& qp, const SendRequest& request);

// The PSN of the request that is sent next.
uint32_t next_psn(const Qp& qp);

// Reports about what is in flight. `number`: of a request; any number may come.
void acknowledged(Qp& qp, uint64_t number);  // requests below it have been carried out
void refused(Qp& qp, uint64_t number, VendorError error);
void not_received(Qp& qp, uint64_t number, uint8_t rnr_timer);    // RNR NAK
void ready_to_receive(Qp& qp, uint64_t number);                   // a receive WQE has been posted since
void not_ready(Qp& qp, uint64_t number, VendorError error);       // the responder cannot take it now
SendRequest* find_awaiting_response(Qp& qp, uint64_t number);     // READ or atomic in flight; nullptr: none such
// Its response is there as a whole, or cannot be put where it belongs.
void responded(Qp& qp, SendRequest& request, VendorError error);

// ---- parts of it, for requests on the fast path ----

// A message of `length` bytes in `packets` packets has been carried out: PSN and counters go on.
inline void advance(Qp& qp, uint32_t length, uint64_t packets) {
  SharedQp& own = *qp.shared;
  qp.requester.psn = psn_add(qp.requester.psn, packets);
  own.send_psn.store(qp.requester.psn, std::memory_order_relaxed);
  own.requests_out.store(own.requests_out.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  own.bytes_out.store(own.bytes_out.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
}

}  // namespace verbena
