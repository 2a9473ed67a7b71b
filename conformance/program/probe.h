// SPDX-License-Identifier: BSD-2-Clause
//
// Examines the device before the tests, in a process of its own: the one that starts them opens none
// (runner.h).
#pragma once

#include "suite/options.h"
#include "suite/report.h"

namespace conformance {

// What the device says about itself; options.device, port and gid_index are set to those that were used.
// Throws std::runtime_error when no device can be used.
Facts probe(Options& options);

}  // namespace conformance
