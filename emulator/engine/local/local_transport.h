// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to queue pairs of this node whose memory this process can reach (RC, UC, XRC): the requester
// carries each one out itself, in the shared memory of both adapters. Synchronous. no_path: the queue pair is
// not connected, or no queue pair has the number.
#pragma once

#include "engine/objects/transport.h"

namespace verbena {

// One object for all queue pairs: the state of a path is in Qp::requester.
Transport& local_transport();

}  // namespace verbena
