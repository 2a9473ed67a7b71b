// SPDX-License-Identifier: BSD-2-Clause
//
// One request: may it start, and what follows from its sending? For the files of this folder; others use
// requester.h.
#pragma once

#include <cstdint>

namespace verbena {

struct Qp;
struct SendRequest;

// What the requester does after one send().
enum class Next : uint8_t {
  kOn,      // with the next request, or chunk
  kFailed,  // the queue pair has failed
  kStop,    // until something comes from the peer
  kLater,   // until the time that retry_at() says
  kPaced,
  kDropped,  // of inject(): the request is complete
};

// Sends the request, or its next chunk, if it may go. All requests before it are sent. The caller holds
// send_lock and no hazard guard.
Next start_request(Qp& qp, SendRequest& request);

}  // namespace verbena
