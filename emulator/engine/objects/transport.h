// SPDX-License-Identifier: BSD-2-Clause
//
// How requests travel. The requester (requester.h) decides when a request is sent, waits, is sent again, fails or is
// completed; a transport carries it to the responder. A queue pair has one transport from RTR to RESET.
//
// Two kinds:
//  * Synchronous: send() carries the request out before it returns. Nothing is ever in flight.
//  * Asynchronous: send() hands the request over (kSent). What becomes of it is reported later: acknowledged(), refused(),
//    rnr(), not_ready(), ready() and answered() of requester.h.
//
// All calls hold send_lock of the queue pair, and hold no hazard.
#pragma once

#include <cstdint>

#include "engine/rules/send_rules.h"

namespace verbena {

struct Qp;
struct SendRequest;

enum class SendOutcome : uint8_t {
  kCompleted,    // carried out; the transport has called complete_request()
  kSent,         // nothing of the request is left to be sent
  kPart,         // a chunk has gone: call send() again at once
  kYield,        // a chunk has gone, or nothing could go for a moment: call send() again later
  kBlocked,      // nothing has gone: the transport takes nothing now
  kBusy,         // nothing has happened: another requester has locked the word of the atomic
  kRnr,          // the responder has no receive WQE: `rnr_timer`
  kFailed,       // the request fails for `error`: the responder has refused it, or it is at fault itself
  kUnreachable,  // nobody answers, for `error`
};

struct SendResult {
  SendOutcome outcome;
  VendorError error = VendorError::none;
  uint8_t rnr_timer = 0;     // enum of ibv_qp_attr::min_rnr_timer, of the responder
  uint64_t patience_ns = 0;  // kUnreachable: the request does not fail before so long, whatever timeout and retry_cnt say
};

class Transport {
 public:
  // Sends `request` from request.done on.
  virtual SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) = 0;

  virtual bool is_synchronous() const = 0;
  // The most that one send() moves, in bytes.
  virtual uint32_t chunk_size() const = 0;

  // Is there a path to the responder? none, or why not. A transport that has none begins to look for one.
  virtual VendorError find_path(Qp&) { return VendorError::none; }

  // Has the path been replaced since the last call? Then all that was in flight is lost. The answer counts the requests at
  // the head of the send queue that had gone as a whole and are not sent again (an unacknowledged one may have arrived).
  static constexpr int kSamePath = -1;
  virtual int was_replaced(Qp&) { return kSamePath; }

  // How long a request waits for an acknowledgement, or for a path, before it fails.
  virtual uint64_t patience_ns(const Qp& qp) const = 0;
  // So much longer, since nothing is wrong with the path.
  virtual int64_t grace_ns(Qp&, int64_t /*now*/) { return 0; }
  // Something is in flight, or waits: check_deadline() is to be called until it answers kEndOfTime.
  virtual void watch(Qp&) {}

  // The responder shall wake this process when it posts a receive WQE. False: it cannot be asked.
  virtual bool ask_for_wakeup(Qp&) { return false; }
  // No receive WQE has been posted since.
  virtual bool is_wakeup_pending(const Qp&) { return true; }

  // Asks for the cache lines that the next step of request `number` is about, all at once.
  virtual void expect_request(const Qp&, uint64_t /*number*/) const {}

  // The message that is under way will not be finished: the queue pair goes to ERR or RESET.
  virtual void abandon(Qp&) {}

 protected:
  ~Transport() = default;
};

}  // namespace verbena
