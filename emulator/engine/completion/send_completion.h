// SPDX-License-Identifier: BSD-2-Clause
//
// Completions of the send queue. The caller holds send_lock.
#pragma once

#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/rules/vendor_error.h"
#include "observe/observer.h"

namespace verbena {

// What the completion of a request says that has succeeded or failed with `error`. The opcode is a valid one.
struct SendCompletion {
  uint64_t wr_id;
  uint64_t number;
  ibv_wr_opcode opcode;
  uint32_t length;
  VendorError error = VendorError::none;
};

bool is_signaled(const Qp& qp, const SendRequest& request);

// Appends it, signaled or not. The caller raises the event afterwards.
void append_send_completion(Qp& qp, const SendCompletion& completion);
void raise_send_event(Qp& qp, bool failed);

// Do both CQs, if there are two, report to one channel?
bool is_own_event_first(const Qp& qp);

// Raises the events of a request that has succeeded: by raise_peers() that of the receive completion at the
// peer and, if `own`, that of its own completion. Both completions are there already: a process that an event
// wakes may have answered before this thread runs again, and must find the request completed.
// - The peer's event first. Raising one is a system call, and wakes a thread: a process that is killed there
//   would leave the peer asleep with a completion in its CQ.
// - Our own first, if both CQs report to one channel. There the events of an adapter come in the order of the
//   completions: that of the acknowledged request before that of the reply.
template <typename RaisePeers>
void raise_both_events(Qp& qp, bool own, RaisePeers raise_peers) {
  const bool own_first = own && is_own_event_first(qp);
  if (own_first) raise_send_event(qp, false);
  raise_peers();
  if (own && !own_first) raise_send_event(qp, false);
}

// Appends the completion of `request`, if it is signaled or has failed, and raises its event.
void complete_send(Qp& qp, const SendRequest& request, VendorError error);

// The same for a request of a rendezvous (SendRequest::tag).
void complete_own(Qp& qp, const SendRequest& request, VendorError error);

// Completes `request` as flushed (IBV_WC_WR_FLUSH_ERR).
void flush_send(Qp& qp, const SendRequest& request);

// Tells the observer, if there is one, how `request` has ended. The PSN of `qp` is still that of the request.
inline void observe_request(const Qp& qp, const SendRequest& request, VendorError error) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_request({qp.shared->qpn, request.wr_id, request.number, qp.requester.psn, request.length,
                      static_cast<uint8_t>(request.opcode), static_cast<uint8_t>(error)});
}

}  // namespace verbena
