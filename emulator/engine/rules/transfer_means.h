// SPDX-License-Identifier: BSD-2-Clause
//
// How the bytes of a request get to or from the responder's memory. A pure function; the means is chosen for
// each chunk.
#pragma once

#include <cstdint>

namespace verbena {

enum class TransferMeans : uint8_t {
  kCopy,        // this process has mapped the region's memory: the processor copies
  kSystemCall,  // the kernel copies between the two processes (fabric/peer_adapter.h)
  kFrames,      // the process that owns the memory copies (engine/remote)
};

struct Reach {
  bool within_reach;  // the kernel lets the two processes reach each other's memory
  bool mapped;        // the region is mapped here, all of the range included
  bool writable;      // and may be written through that mapping
  bool takes_sigbus;  // the thread does not block the signal that ends a copy (fabric/guarded_copy.h)
};

// `writes`: WRITE, SEND and atomics, which change the responder's memory. READ does not. The size does not
// matter: a copy costs less than a system call from the first byte on, and no more for the last.
constexpr TransferMeans choose_means(const Reach& reach, bool writes) {
  if (!reach.within_reach) return TransferMeans::kFrames;
  if (reach.mapped && reach.takes_sigbus && (reach.writable || !writes)) return TransferMeans::kCopy;
  return TransferMeans::kSystemCall;
}

}  // namespace verbena
