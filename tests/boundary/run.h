// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

namespace verbena::testing {

struct Outcome {
  int status;          // what exit(2) was given; 128 + the signal otherwise
  std::string output;  // stdout and stderr
};

// Runs a command line of sh(1); a minute at most.
Outcome run(const std::string& command);

// "" when the file cannot be read.
std::string contents(const std::string& path);

}  // namespace verbena::testing
