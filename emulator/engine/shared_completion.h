// SPDX-License-Identifier: BSD-2-Clause
//
// Receive completions whose request came from a queue with many feeders (kCqeFromShared), and those of
// datagrams (kCqeDatagram), on their way to the program. The caller holds the CQ's lock.
#pragma once

#include <infiniband/verbs.h>

#include "engine/objects.h"

namespace verbena {

// Puts a message that has landed where its request says. `safely`: by the kernel's hand, since the program
// may have unmapped the buffer.
void scatter_from_shared(const Qp& qp, const Cqe& entry, bool safely);

// The request's wr_id; its slot is free from now on.
uint64_t take_shared_receive(Qp& qp, const Cqe& entry);

// The fields that tell of a datagram's origin.
void fill_datagram_origin(const Cqe& entry, ibv_wc* wc);

}  // namespace verbena
