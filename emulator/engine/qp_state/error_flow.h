// SPDX-License-Identifier: BSD-2-Clause
//
// The transition of a queue pair to ERR, SQE and RESET, and the specification's rules for flushing (vol. 1,
// 10.3.1.7, 10.10.2).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct Qp;

// Moves the QP to `state`, ERR or RESET, and begins a new generation of SharedQp::responder_state, so that no
// further request is accepted. Requests under way may still be finished by their peers. The caller holds
// send_lock.
void close_responder(Qp& qp, ibv_qp_state state);

// Moves the QP to ERR and flushes its send queue. Its receive queue is flushed as soon as no peer uses it:
// here, or by the service thread. The caller holds send_lock, and no hazard guard.
void enter_error(Qp& qp);

// Moves a QP of an unreliable transport to SQE: its send queue is flushed, and it still receives (vol. 1,
// 10.3.1.6). The caller holds send_lock.
void enter_send_queue_error(Qp& qp);

// Flushes the receive queue of a QP in ERR. Waits up to `patience_ns` for peers. False: a peer still uses the
// queue; call again. A hazard guard lasts some microseconds, or until a stopped process is continued.
bool flush_receive_queue(Qp& qp, int64_t patience_ns);
inline constexpr int64_t kHazardPatience = 100'000;

// For RESET and destruction, when no peer uses the QP: returns its current WQE to the SRQ, and discards what
// is posted on a shared queue of its own.
void forget_receives(Qp& qp);

// For RESET and destruction: removes the completions of `qp` from its CQs.
void purge_completions(Qp& qp);

// Appends a flush completion for a receive WQE that was posted in ERR. If older WQEs are still to be flushed,
// it is flushed with them. The caller holds recv_lock.
void flush_one_receive(Qp& qp, uint64_t number);

}  // namespace verbena
