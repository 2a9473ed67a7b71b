// SPDX-License-Identifier: BSD-2-Clause
//
// Looks at the device before the tests, in a process of its own: the one that starts them opens none
// (runner.h).
#pragma once

#include "suite/options.h"
#include "suite/report.h"

namespace conformance {

// What the device says of itself; options.device, port and gid_index become those it was asked by. Throws
// std::runtime_error when no device can be used.
Facts probe(Options& options);

}  // namespace conformance
