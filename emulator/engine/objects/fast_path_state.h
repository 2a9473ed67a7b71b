// SPDX-License-Identifier: BSD-2-Clause
//
// What the fast path knows of a queue pair (local/fast_path.h). Under Qp::send_lock.
#pragma once

#include <cstdint>

#include "adapter/known_region.h"

namespace verbena {

// What requests on the fast path compare, and what they cache.
struct FastPath {
  // PeerPath::responder_state when the rest was decided; 0: the fast path is closed.
  uint64_t responder_state = 0;
  uint32_t small_size = 0;    // SENDs of up to so many bytes may take the fast path (small_send.h)
  bool rdma = false;          // WRITEs and READs may (small_rdma.h)
  KnownRegion gathered;       // of this process: the first cache line has all that a SEND needs
  KnownRegion written, read;  // of the peer's
  KnownRegion read_into;      // of this process
};

}  // namespace verbena
