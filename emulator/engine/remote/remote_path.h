// SPDX-License-Identifier: BSD-2-Clause
//
// The way to a queue pair of another node, and how far its requests have come on it. They are sent in order
// and finish in order, by what the responder says of their numbers; whatever it has not taken is sent again
// from there on (go-back-N), so that a broken connection or a refusal for now loses and doubles nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/requester/send_rules.h"
#include "wire/net_address.h"
#include "wire/process_id.h"

namespace verbena {

class Remote;
struct RemotePeer;
struct Qp;
struct SendRequest;

// Where processes are that have no address to each other, as they are of one node.
inline constexpr wire::NetAddress kThisNode{};

// Its answer brings bytes, and finishes it; an acknowledgement finishes the others.
constexpr bool brings_answer(const SendOperation& operation) {
  return operation.awaits_response && operation.sges == SgeUse::scatter;
}

// Under the queue pair's send_lock, but for what does not change.
struct RemotePath {
  Remote* remote = nullptr;
  wire::NetAddress to;  // kThisNode: the peer is `process`
  wire::NetAddress from;
  wire::ProcessId process;
  uint32_t qpn = 0;
  uint64_t path_generation = 0;
  std::shared_ptr<RemotePeer> peer;  // nullptr: it is being looked for
  uint32_t epoch = 0;                // of the peer's connection over which requests went
  uint64_t sent = 0;                 // the first request that is not sent as a whole
  uint64_t begun = 0;                // the first of which nothing has been sent, nor would have been by an adapter
  uint64_t acknowledged = 0;         // those below are done, but for answers that are on their way
  uint64_t refused_at = 0;           // 1 + number: refused for `refusal`, once those before it are finished
  VendorError refusal = VendorError::none;
  uint64_t bulk = 0;  // RemotePeer::bulks as it was when the last chunk of request `sent` began
  uint32_t next_psn = 0;
  uint32_t answers_awaited = 0;  // READs and atomics in flight
  uint64_t rnr_number = 0;       // which found no receive request
  uint32_t rnr_tries = 0;        // how many times, without any progress
  int64_t send_again_at = 0;     // ns: nothing is sent before
  int64_t pause = 0;             // ns: how long the last wait for a responder that is not ready was
  bool is_watched = false;       // Remote looks at its deadline
  // Any thread: somebody there has taken a call, and not refused it; or is connected already and was asked who has the
  // number, and has not said that nobody has.
  std::atomic<bool> is_called{false};
};

// Asks for the lines that the requester's next step is about, all at once: with many queue pairs used in turn they are
// not in the nearest cache, and one after the other they would be waited for. `number`: the request. The caller holds
// send_lock.
void expect_request(const Qp& qp, uint64_t number);

// Sends what can be sent, and says when to come again at the latest, ns; kEndOfTime: not before something
// comes from the peer. The caller holds send_lock and holds no hazard guard.
int64_t progress_remote(Qp& qp);

// A request has been kept in the send queue of a queue pair in RTS. The caller holds send_lock, and is on no
// hazard guard.
void post_remote(Qp& qp);

// What the responder says. The caller holds send_lock; numbers may be anything.
void take_acknowledgement(Qp& qp, uint64_t number);
void take_refusal(Qp& qp, uint64_t number, uint32_t vendor_error);
void take_rnr(Qp& qp, uint64_t number, uint8_t rnr_timer);
void take_ready(Qp& qp, uint64_t number);
void take_not_ready(Qp& qp, uint64_t number, uint32_t vendor_error);
// The request that awaits answer `number`; nullptr: none does.
SendRequest* find_awaiting(Qp& qp, uint64_t number);
// Its answer is there as a whole, or cannot be put where it belongs.
void take_answer(Qp& qp, SendRequest& request, VendorError error);

// Fails what has waited too long. When to look again, ns; kEndOfTime: nothing is in flight.
int64_t check_deadline(Qp& qp, int64_t now);

}  // namespace verbena
