// SPDX-License-Identifier: BSD-2-Clause
//
// Runs tests, each in a process of its own under its own time limit. This process opens no device and starts
// no thread: a fork of it is as good as a new program.
#pragma once

#include <functional>
#include <vector>

#include "suite/options.h"
#include "suite/registry.h"
#include "suite/verdict.h"

namespace conformance {

struct Progress {
  const TestInfo* test;  // the one that has just ended
  const TestResult* result;
  size_t done, total;
  std::chrono::milliseconds elapsed;
};

// One result for each of `selected`, in its order. `told` is called at the end of each test. A test that
// exceeds its limit is killed with all its processes and reported, and the next one goes on.
std::vector<TestResult> run_tests(const std::vector<const TestInfo*>& selected, const Options& options,
                                  const std::function<void(const Progress&)>& told);

}  // namespace conformance
