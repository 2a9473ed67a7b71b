// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <memory>

#include "random/program.h"
#include "suite/options.h"
#include "suite/verdict.h"

namespace conformance::random {

struct Shrunk {
  Program program;
  TestResult result;  // of its last run
  size_t runs = 0;
};

// The least program, by leaving out steps and pairs, that still deviates in a clause in which `result` does.
// Runs some hundred programs, several at a time, each in a process of its own. A deviation that does not come
// again leaves the program as it is.
Shrunk shrink(const Program& program, const TestResult& result, const Options& options);

}  // namespace conformance::random
