// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/qp.h"

#include "adapter/known_region.h"
#include "engine/objects/fast_path_state.h"
#include "engine/objects/flight.h"
#include "engine/objects/process.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/rules/pacing.h"

namespace verbena {

// Each group begins a cache line. `fast` and `requester` are used by requests on the fast path, `requester`,
// `flight` and `pacing` by others, `scattered` by the thread that posts receive requests.
struct QpParts {
  alignas(kCacheLine) RequesterContext requester;
  alignas(kCacheLine) FastPath fast;
  alignas(kCacheLine) Flight flight;
  Pacing pacing;
  alignas(kCacheLine) KnownRegion scattered;
};

Qp::Qp()
    : parts(std::make_unique<QpParts>()),
      scattered(parts->scattered),
      fast(parts->fast),
      requester(parts->requester),
      flight(parts->flight),
      pacing(parts->pacing) {}

Qp::~Qp() = default;

bool is_dead(const Qp& qp) { return qp.process->dead(); }

}  // namespace verbena
