// SPDX-License-Identifier: BSD-2-Clause
//
// Which of the known deviations of a device (--expect) random programs can meet. Without --expect there are
// none.
#pragma once

#include <set>
#include <string>

#include "random/program.h"

namespace conformance::random {

// `deviations`: ids of clauses.
Known known_of(const std::set<std::string>& deviations);

}  // namespace conformance::random
