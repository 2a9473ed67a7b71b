// SPDX-License-Identifier: BSD-2-Clause
//
// The requests of a queue pair that are under way. Under Qp::send_lock.
#pragma once

#include <cstdint>

#include "engine/rules/vendor_error.h"

namespace verbena {

// How far the requests given to the transport have come. All are running numbers of the queue pair. Requests
// below sq_next are finished; [sq_next, sent) are in flight.
struct Flight {
  uint64_t sent = 0;          // the first request that is not completely sent
  uint64_t begun = 0;         // the first request of which a hardware adapter would have sent nothing yet
  uint64_t acknowledged = 0;  // requests below have been carried out, except for responses on their way
  uint64_t refused_at = 0;    // 1 + number: refused for `refusal`, once those before it are finished
  VendorError refusal = VendorError::none;
  uint32_t next_psn = 0;           // of request `sent`
  uint32_t responses_awaited = 0;  // READs and atomics in flight
  uint32_t rnr_tries = 0;          // how often request `rnr_number` found no receive WQE, without progress
  uint64_t rnr_number = 0;
  // Faults on purpose: the acknowledgement of request sq_next was lost, and another one comes then. ns; 0: it was not.
  int64_t acknowledged_again_at = 0;
  int64_t pause = 0;  // ns: length of the last wait for a responder that was not ready
};

}  // namespace verbena
