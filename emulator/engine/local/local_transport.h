// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to queue pairs of this node whose memory this process can reach (RC, UC, XRC): the requester carries each one
// out itself, in the shared memory of both adapters. Synchronous. Without a path (RESET to INIT, or nobody has the number)
// it answers no_path.
#pragma once

#include "engine/objects/transport.h"

namespace verbena {

// One for all queue pairs: what a path needs to know is in Qp::requester.
Transport& local_transport();

}  // namespace verbena
