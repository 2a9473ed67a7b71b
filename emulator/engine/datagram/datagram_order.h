// SPDX-License-Identifier: BSD-2-Clause
//
// The order of arrival at a datagram receive queue, if receive WQEs name the same buffer. A small message
// stays in its receive slot until its completion is polled. A large one is placed in the buffer at once.
// Earlier messages from any sender must be in the buffer before, or polling would write them over the large
// one. An adapter receives messages for a queue one after the other (InfiniBand Architecture Specification
// vol. 1, 10.8.3.1: receive requests are completed in the order of their posting).
//
// The sender of the large message looks for earlier ones between the head of the CQ and its own completion.
// Senders of small messages have no extra work.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace verbena {

class NodeDirectory;
struct Destination;

enum class Until : uint8_t {
  kEagerAreScattered,
  kUnfinishedAreScattered,  // those as well whose completions are being appended
};

// Waits until nothing that came before completion `end` of the CQ is still to be scattered to one of the
// `ranges` in the receiver's memory. The caller holds a hazard guard. A stopped receiver is waited for once,
// for a second at most, not for every message. True: there was something to wait for, and it is done.
bool settle(Destination& to, const NodeDirectory& directory, uint64_t end, const iovec* ranges, size_t count,
            Until until);

}  // namespace verbena
