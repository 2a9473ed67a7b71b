// SPDX-License-Identifier: BSD-2-Clause
//
// The bounce ring of a queue pair: memory of the receiving adapter through which messages travel that are too
// long for the bounce buffer of a receive slot, and whose receive buffer the requester has not mapped. It is
// the queue pair's also if its receive WQEs come from an SRQ. The requester copies a message into the ring,
// the owner copies it to the receive buffer when its completion is polled. No system call is needed.
//
// - The ring is made when a requester first asks for it (kPendingBounceRing). Until then, and while it is
//   full, messages are placed by system calls.
// - Positions are running numbers of bytes. A message lies in one piece, from the beginning of a cache line.
// - The requester writes SharedQp::bounce_ring_written, before it publishes the completion: a requester that
//   is killed leaves bytes that nobody uses.
// - The message's position stands in its completion: Cqe::payload.
// - The owner writes SharedQp::bounce_ring_freed. Messages of a queue pair are polled in their order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "adapter/layout.h"
#include "adapter/segment.h"

namespace verbena {

struct BounceRing {
  std::byte* bytes = nullptr;  // kBounceRingSize; nullptr: there is none

  // The ring of `qp`; none if it does not lie within the segment.
  static BounceRing of(const SegmentView& segment, const SharedQp& qp) {
    const uint64_t offset = qp.bounce_ring_offset.load(std::memory_order_acquire);
    return {offset != 0 ? segment.at<std::byte>(offset, kBounceRingSize) : nullptr};
  }

  std::byte* at(uint64_t position) const { return bytes + (position & (kBounceRingSize - 1)); }

  // Where a message of `length` begins that is written when the ring is used up to `written`.
  static constexpr uint64_t place(uint64_t written, uint32_t length) {
    return holds(written, length) ? written : (written | (kBounceRingSize - 1)) + 1;
  }
  // Where it ends: the next one may begin here.
  static constexpr uint64_t end(uint64_t position, uint32_t length) {
    return (position + length + kCacheLine - 1) & ~uint64_t{kCacheLine - 1};
  }
  // Does a message lie in one piece?
  static constexpr bool holds(uint64_t position, uint32_t length) {
    return length <= kBounceRingSize - (position & (kBounceRingSize - 1));
  }
};

}  // namespace verbena
