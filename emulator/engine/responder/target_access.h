// SPDX-License-Identifier: BSD-2-Clause
//
// Access to what a request of another node takes effect on: the queue pair and, with XRC, the SRQ that it
// names.
#pragma once

#include <cstdint>

#include "engine/objects/process.h"
#include "engine/objects/requester_context.h"
#include "engine/responder/peer_path.h"
#include "engine/responder/xrc_target.h"
#include "fabric/hazard_guard.h"

namespace verbena {

// Hazard guards on the adapter of the queue pair and, with XRC, on that of the SRQ that the request names.
// Both are checked; or why they cannot be used.
struct TargetAccess {
  TargetAccess(RequesterContext& requester, uint32_t srqn) {
    const HazardRecords own = requester.process->hazards();
    VendorError target = VendorError::none;
    if (requester.xrc_targets) target = select_target(requester, srqn);
    guard.begin(own, requester.process->membership().slot());
    if (requester.xrc_targets && target == VendorError::none)
      to_target.begin(own, requester.path.memory->slot());
    unreachable = check_path(requester);
    if (unreachable != VendorError::none || !requester.xrc_targets) return;
    if (target == VendorError::none) target = check_target(requester);
    (refuses_target(target) ? refused : unreachable) = target;
  }

  HazardGuard guard, to_target;
  VendorError unreachable = VendorError::none;
  VendorError refused = VendorError::none;  // refuses_target()
};

}  // namespace verbena
