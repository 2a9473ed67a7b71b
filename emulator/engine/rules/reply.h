// SPDX-License-Identifier: BSD-2-Clause
//
// What an adapter sends back for a request that fails, as an observer is told it. Pure.
#pragma once

#include "engine/rules/vendor_error.h"
#include "observe/observer.h"

namespace verbena {

// Of a request whose completion at the requester has this error. kNothing: the requester itself has failed
// it.
Reply reply_of(VendorError error) noexcept;

}  // namespace verbena
