// SPDX-License-Identifier: BSD-2-Clause
//
// The requester: one state machine for the send queues of all queue pair types and all transports. It decides
// when a request starts, waits, is sent again, fails or completes, and handles fences, drains and timeouts.
// Transports carry requests (transport.h) and report here.
//
// All functions are called with send_lock of the queue pair held, and without a hazard guard, unless a
// comment says otherwise.
//
// The files: requester.cc drives the send queue, starting.cc sends one request, waiting.cc has waits and
// deadlines, in_flight.cc what is in flight and what is done, reports.cc the reports of transports.
#pragma once

#include <cstdint>

namespace verbena {

enum class VendorError : uint32_t;
struct Qp;
struct SendRequest;

// ---- the program and the scheduler ----

enum class Step : uint8_t { kFinished, kFailed, kWaits };

// Carries `request` out as far as possible without waiting. It must be the only unfinished request of the
// queue pair, and the transport synchronous. The request is kept in the send queue only if the result is
// kWaits.
Step start_alone(Qp& qp, SendRequest& request);

// Starts a request that was added to the send queue, or leaves it to the scheduler. The queue pair is in RTS.
void start_kept(Qp& qp);

// Carries out queued requests until the queue is empty or one has to wait. `from_service`: the service thread
// calls, because the program has not polled lately; then the peer is asked to wake this process. Returns when
// to call again at the latest, ns of CLOCK_MONOTONIC; kEndOfTime: when something comes from the peer.
int64_t progress_send_queue(Qp& qp, bool from_service);

// Fails the first request if it has waited too long. Returns when to call again, ns; kEndOfTime: nothing is
// in flight.
int64_t check_deadline(Qp& qp, int64_t now);

// The queue pair has a path from now on, and nothing in flight.
void begin_flight(Qp& qp);

// ---- transports ----

// The request at the head of the send queue has been carried out: completes it. True: a completion was
// appended, and the caller raises the event (raise_send_event()). `to_group`: a datagram, to a multicast
// group.
bool finish_request(Qp& qp, const SendRequest& request, bool to_group = false);
// The same, and raises the event.
void complete_request(Qp& qp, const SendRequest& request);

// The PSN of the request that is sent next.
uint32_t next_psn(const Qp& qp);

// Reports about requests in flight. `number` may be any number: reports that match no request in flight are
// ignored.
void acknowledged(Qp& qp, uint64_t number);  // requests below it have been carried out
void refused(Qp& qp, uint64_t number, VendorError error);
void not_received(Qp& qp, uint64_t number, uint8_t rnr_timer);  // RNR NAK
void ready_to_receive(Qp& qp, uint64_t number);                 // a receive WQE has been posted since
void not_ready(Qp& qp, uint64_t number, VendorError error);     // not now; those below: unknown
SendRequest* find_awaiting_response(Qp& qp, uint64_t number);  // READ or atomic in flight; nullptr: none such
// The whole response has come, or it cannot be placed (`error`).
void responded(Qp& qp, SendRequest& request, VendorError error);

}  // namespace verbena
