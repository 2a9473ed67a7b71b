// SPDX-License-Identifier: BSD-2-Clause
//
// The way of a queue pair into ERR and what has to be completed on it: the specification's flushing rules
// (vol. 1, 10.3.1.7, 10.10.2).
#pragma once

#include "engine/events/async_events.h"
#include "engine/objects/qp.h"

namespace verbena {

// Shuts the gate and puts the QP into `state` (ERR or RESET, or SQD with the gate open is not this
// function's). The caller holds send_lock. Peers that are in the middle of a request may still finish it.
void close_responder(Qp& qp, ibv_qp_state state);

// Moves the QP to ERR, flushes the send queue, and the receive queue as soon as no peer is at work on it
// (at once, or by the service thread). The caller holds send_lock and holds no hazard guard.
void enter_error(Qp& qp);

// An unreliable transport's send queue fails alone: what was posted is flushed, receiving goes on (SQE; vol.
// 1, 10.3.1.6). The caller holds send_lock.
void enter_send_queue_error(Qp& qp);

// Does what peers left word of in SharedQp::pending_flags: the responder's errors and COMM_EST. The service
// thread calls it when kicked, and every verb on the QP before it does anything, so that nobody sees a state
// that a completed request has already ended. Takes send_lock.
void act_on_pending_flags_slowly(Qp& qp);
inline void act_on_pending_flags(Qp& qp) {
  if (qp.shared->pending_flags.load(std::memory_order_acquire) != 0) act_on_pending_flags_slowly(qp);
}

// Flushes what is posted on the receive queue of a QP in ERR. False: a peer is still at work; come again.
// A request's hazard guard lasts some microseconds; a stopped process's lasts until it is continued.
bool flush_receive_queue(Qp& qp, int64_t patience_ns);
inline constexpr int64_t kHazardPatience = 100'000;

// RESET and destruction, when no peer is at work on it: gives an SRQ back what the QP had in hand, and
// forgets what is posted on a shared queue of its own.
void forget_receives(Qp& qp);

// Takes the completions of `qp` out of its CQs (RESET and destruction).
void purge_completions(Qp& qp);

// Appends a flush completion for one receive WQE that is posted in ERR. The caller holds recv_lock.
void flush_one_receive(Qp& qp, uint64_t number);

}  // namespace verbena
