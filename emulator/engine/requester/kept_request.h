// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"

namespace verbena {

// The request of a number in [sq_next, sq_posted). The caller holds send_lock.
inline SendRequest& request_at(Qp& qp, uint64_t number) { return qp.sq[number & (qp.sq.size() - 1)]; }

}  // namespace verbena
