// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/qp.h"

#include "engine/objects/fast_path_state.h"
#include "engine/objects/flight.h"
#include "engine/objects/own_requests.h"
#include "engine/objects/process.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/rules/pacing.h"

namespace verbena {

// In the order in which requests use them: `requester` all, `flight` and `pacing` those off the fast path,
// the first line of `fast` all.
struct QpParts {
  alignas(kCacheLine) RequesterContext requester;
  Pacing pacing;
  alignas(kCacheLine) Flight flight;
  alignas(kCacheLine) FastPath fast;
};

Qp::Qp()
    : parts(std::make_unique<QpParts>()),
      fast(parts->fast),
      requester(parts->requester),
      flight(parts->flight),
      pacing(parts->pacing) {}

Qp::~Qp() = default;

bool is_dead(const Qp& qp) { return qp.process->dead(); }

}  // namespace verbena
