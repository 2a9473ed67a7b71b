// SPDX-License-Identifier: BSD-2-Clause
//
// The send queue at work: takes requests in order, carries each out against the peer, completes it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <utility>

#include "engine/completion/completion.h"
#include "engine/objects.h"
#include "engine/requester/psn.h"
#include "fabric/hazards.h"

namespace verbena {

// Carries out what is queued until the queue is empty or something has to be waited for. The caller holds
// send_lock. `from_service`: the service thread calls, since nobody polled for a while; the peer is then
// asked to wake it. Returns when to come again at the latest: ns of CLOCK_MONOTONIC, kEndOfTime if nothing
// waits.
int64_t progress_send_queue(Qp& qp, bool from_service);

enum class Step : uint8_t { kFinished, kFailed, kWaits };
// Carries out the QP's first request that is not finished, as far as that can be done without waiting. The
// caller holds send_lock.
Step carry_out(Qp& qp, SendRequest& request);

// Of a queue pair with a rate (pacing.h). held_back_until: when the next piece of the request, of up to `most` bytes,
// may go, ns; 0: now. charge_for: so many bytes of it have gone. The caller holds send_lock.
int64_t held_back_until(Qp& qp, const SendRequest& request, uint32_t most);
void charge_for(Qp& qp, const SendRequest& request, uint32_t bytes);

// The request completes with an error, and the QP goes to ERR, or to SQE. The caller holds send_lock.
Step fail(Qp& qp, const SendRequest& request, VendorError error);

// Appends the completion of `request` to the QP's own send CQ, if it is signaled or has failed.
void complete_send(Qp& qp, const SendRequest& request, VendorError error);

// Finds the memory behind the request's list; `ranges` has room for PeerAdapter::kMaxRanges. The caller is on
// a hazard guard.
VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                             iovec* ranges, size_t* count);

// What post_send does under send_lock, which the caller holds; and the rules that it goes by. `guard`: the
// caller's, or none (post_send.cc).
int post_list(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr, HazardGuard& guard);
SendLimits send_limits(const Qp& qp);

// What the completion of a request says that has succeeded or failed with `error`; its opcode is known to be
// one.
struct SendCompletion {
  uint64_t wr_id;
  uint64_t number;
  ibv_wr_opcode opcode;
  uint32_t length;
  VendorError error = VendorError::none;
};
// Appends it, asked for or not.
void append_send_completion(Qp& qp, const SendCompletion& completion);

// A message of `length` bytes in `packets` packets has been carried out: PSN and counters go on.
inline void advance(Qp& qp, uint32_t length, uint64_t packets) {
  SharedQp& own = *qp.shared;
  qp.send_psn = psn_add(qp.send_psn, packets);
  own.send_psn.store(qp.send_psn, std::memory_order_relaxed);
  own.requests_out.store(own.requests_out.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  own.bytes_out.store(own.bytes_out.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
}

// Are the QP's own port and the peer's up?
inline bool ports_up(const Qp& qp) {
  return (qp.process->directory().header().ports_down.load(std::memory_order_relaxed) & qp.path.ports) == 0;
}

// Raises the event of the receive completion that was appended last, after the own completion.
inline void raise_event_due(PeerPath& path) {
  if (const uint8_t due = std::exchange(path.event_due, 0); due != 0)
    raise_completion_event(*path.completion_queue, *path.memory, due == 2);
}

}  // namespace verbena
