// SPDX-License-Identifier: BSD-2-Clause
//
// The order of arrival at a datagram receive queue, where requests name the same buffer. A small message lies
// in its receive slot until its completion is polled, a large one is put into the buffer at once: what came
// before it, from whatever sender, has to be there first, or polling would put it over the large one. An
// adapter carries out what comes in for a queue one after the other (InfiniBand Architecture Specification
// vol. 1, 10.8.3.1: receive requests are completed in the order of their posting).
//
// The sender of the large message looks for such ones between the CQ's head and the completion that it has
// claimed for itself. Senders of small messages do nothing for it.
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
