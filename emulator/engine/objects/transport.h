// SPDX-License-Identifier: BSD-2-Clause
//
// How requests travel. The requester (requester.h) decides when a request is sent, waits, is sent again,
// fails or is completed. A transport carries the request to the responder. A queue pair has one transport
// from RTR to RESET.
//
// Two kinds:
// - Synchronous: send() carries the request out before it returns. Nothing is ever in flight.
// - Asynchronous: send() gives the request away (kSent). Its outcome is reported later: acknowledged(),
//   refused(), not_received(), ready_to_receive(), not_ready() and responded() of requester.h.
//
// All calls hold send_lock of the queue pair, and no hazard guard.
#pragma once

#include <cstdint>

#include "engine/rules/send_rules.h"

namespace verbena {

struct Qp;
struct SendRequest;

enum class SendOutcome : uint8_t {
  kCompleted,    // carried out; the transport has called complete_request()
  kSent,         // the whole request is sent
  kPart,         // a chunk is sent: call send() again at once
  kYield,        // a chunk is sent, or nothing could be sent for a moment: call send() again later
  kBlocked,      // nothing is sent: the transport accepts nothing now
  kBusy,         // nothing has happened: another requester has locked the word of the atomic
  kRnr,          // the responder has no receive WQE: `rnr_timer`
  kFailed,       // the request fails for `error`: the responder refused it, or the request itself is wrong
  kUnreachable,  // no reply from the responder, for `error`
};

struct SendResult {
  SendOutcome outcome;
  VendorError error = VendorError::none;
  uint8_t rnr_timer = 0;     // enum of ibv_qp_attr::min_rnr_timer, of the responder
  uint64_t patience_ns = 0;  // kUnreachable: least wait before failing, whatever timeout and retry_cnt
};

class Transport {
 public:
  // Sends `request` from request.done on.
  virtual SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) = 0;

  virtual bool is_synchronous() const = 0;
  // Is the responder on another node? Observers of this one then see only what the requester knows.
  virtual bool leads_out() const { return false; }
  // The most bytes that one send() moves.
  virtual uint32_t chunk_size() const = 0;

  // Is there a path to the responder? none, or the reason why not. A transport without a path starts to look
  // for one.
  virtual VendorError find_path(Qp&) { return VendorError::none; }

  // Has the path been replaced since the last call? Then all requests in flight are lost. Returns the number
  // of requests at the head of the send queue that were completely sent and are not sent again (an
  // unacknowledged request may have arrived).
  static constexpr int kSamePath = -1;
  virtual int was_replaced(Qp&) { return kSamePath; }

  // ns that a request waits for an acknowledgement, or for a path, before it fails.
  virtual uint64_t patience_ns(const Qp& qp) const = 0;
  // ns to wait in addition, since nothing is wrong with the path.
  virtual int64_t grace_ns(Qp&, int64_t /*now*/) { return 0; }
  // A request is in flight, or waits: check_deadline() must be called until it returns kEndOfTime.
  virtual void watch(Qp&) {}

  // Asks the responder to wake this process when it posts a receive WQE. False: the responder cannot be
  // asked.
  virtual bool ask_for_wakeup(Qp&) { return false; }
  // No receive WQE has been posted since.
  virtual bool is_wakeup_pending(const Qp&) { return true; }

  // Prefetches, all at once, the cache lines that the next step of request `number` uses.
  virtual void expect_request(const Qp&, uint64_t /*number*/) const {}

  // The current message will not be finished: the queue pair goes to ERR or RESET.
  virtual void abandon(Qp&) {}

 protected:
  ~Transport() = default;
};

}  // namespace verbena
