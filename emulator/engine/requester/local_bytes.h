// SPDX-License-Identifier: BSD-2-Clause
//
// The requester's own memory behind the scatter/gather list of a request.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/rules/send_rules.h"

namespace verbena {

// Finds the bytes, and checks the local keys. `ranges` has space for PeerAdapter::kMaxRanges. Returns none,
// or an lkey_... error. The caller holds a hazard guard on any adapter: the regions stay registered
// meanwhile.
VendorError find_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request, iovec* ranges,
                             size_t* count);

// Copies the bytes of a short request to `to`, which has room for request.length of them. Errors as above. No
// hazard guard is held.
VendorError gather_local_bytes(Qp& qp, const SendOperation& operation, const SendRequest& request,
                               uint8_t* to);

}  // namespace verbena
