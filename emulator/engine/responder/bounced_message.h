// SPDX-License-Identifier: BSD-2-Clause
//
// A message that goes through the bounce ring of the responder's queue pair (adapter/bounce_ring.h): the
// requester's side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/objects/requester_context.h"
#include "engine/responder/responder.h"

namespace verbena {

// The longest message that goes through a bounce ring rather than by a system call, by what such a call costs
// on this machine: it is measured, in some 20 us. At most kLongestBounced.
uint32_t measure_longest_bounced(PeerAdapter& self, const NodeDirectory& directory);

// May the message go through a bounce ring at all? It is in this process as a whole, the responder is
// another process, and nothing of it has been placed.
bool may_bounce(const RequesterContext& requester, const Request& request);

// Copies a message of `length` bytes to the ring. *position: where, for its completion. False: the ring has
// no room, or is not there yet and has been asked for. Under a hazard guard.
bool bounce_message(PeerPath& path, const iovec* ranges, size_t count, uint32_t length, uint64_t* position);

// Before the completion is published: the place is used.
inline void keep_bounced(PeerPath& path, uint64_t position, uint32_t length) {
  path.bounced = BounceRing::end(position, length);
  path.qp->bounce_ring_written.store(path.bounced, std::memory_order_relaxed);
}

// Instead, if there will be none: the place is free again. `before`: PeerPath::bounced before keep_bounced().
inline void give_back_bounced(PeerPath& path, uint64_t before) {
  path.bounced = before;
  path.qp->bounce_ring_written.store(before, std::memory_order_relaxed);
}

// After the completion: the place of the next message, which is probably as long, is fetched from the
// responder's cache.
void prepare_bounce(PeerPath& path, uint32_t length);

}  // namespace verbena
