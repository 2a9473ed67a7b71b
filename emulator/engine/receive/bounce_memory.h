// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a bounce ring (adapter/bounce_ring.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena {

struct Qp;

// A requester has asked for a ring. There is none afterwards if the process has many already, or no memory:
// the requester does without. By the service thread or a verb on the QP.
void make_bounce_ring(Qp& qp);

// The QP is being destroyed, and no requester can reach it.
void unmake_bounce_ring(Qp& qp);

// A message in the ring. bytes == nullptr: there is none, the shared memory is damaged.
struct BouncedMessage {
  std::byte* bytes = nullptr;
  uint64_t end = 0;
};

// The message of `length` bytes at `position`, which its completion names. Under Cq::lock.
BouncedMessage find_bounced(const Qp& qp, uint64_t position, uint32_t length);

// The message was copied to its receive buffer, or is lost: the requester may use its bytes again, and those
// of earlier ones. Under Cq::lock.
void free_bounced(Qp& qp, const BouncedMessage& message);

}  // namespace verbena
