// SPDX-License-Identifier: BSD-2-Clause
//
// What the fast path knows of a queue pair (local/fast_path.h). Under Qp::send_lock.
#pragma once

#include <cstdint>

#include "adapter/known_region.h"

namespace verbena {

// The region of the peer's that was named last. If it is mapped, `region` goes no further than the mapping.
struct KnownRemote {
  KnownRegion region;
  bool is_mapped = false;   // this process has mapped it, and may use the mapping (responder/mapped_bytes.h)
  uint64_t to_mapping = 0;  // from the peer's address of a byte to ours
};

// What requests on the fast path compare, and what they cache.
struct FastPath {
  // PeerPath::responder_state when the rest was decided; 0: the fast path is closed.
  uint64_t responder_state = 0;
  uint32_t small_size = 0;  // SENDs of up to so many bytes may take the fast path (small_send.h)
  bool is_shared = false;   // SENDs: the receive WQEs come from an SRQ
  bool rdma = false;        // WRITEs and READs may (small_rdma.h)
  bool long_sends = false;  // longer SENDs may (long_send.h),
  bool may_bounce = false;  // and through the bounce ring as well
  KnownRegion gathered;     // of this process: the first cache line has all that a SEND needs
  KnownRemote written, read, changed;
  KnownRemote received;   // by SENDs into mapped memory
  KnownRegion read_into;  // of this process
};

}  // namespace verbena
