// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <optional>

#include "random/machine.h"

namespace conformance::random {

// Runs the program on objects of its own. Nothing: as the model says. Throws what support/objects.h does.
std::optional<Finding> run(Topology& topology, const Program& program, const Claims& claims);

// The least program that shows the same kind of deviation, and what it shows.
struct Shrunk {
  Program program;
  Finding finding;
};
Shrunk shrink_on(Topology& topology, Program program, Finding finding, const Claims& claims);

}  // namespace conformance::random
