// SPDX-License-Identifier: BSD-2-Clause
//
// The second half of a rendezvous (rdma-core, Documentation/tag_matching.md): the message of a tag is fetched
// by an RDMA READ of the queue pair that its request came to, and the peer is told by a SEND (IBV_TMH_FIN).
// Both go through the program's own send queue, behind what it has posted, and give no completions there.
#pragma once

#include "engine/objects/srq.h"

namespace verbena {

Rendezvous& rendezvous();

}  // namespace verbena
