// SPDX-License-Identifier: BSD-2-Clause
//
// Requests of UD queue pairs: each goes to the queue pairs of its address, and is complete. Synchronous.
#pragma once

#include "engine/objects/transport.h"

namespace verbena {

Transport& datagram_transport();

}  // namespace verbena
