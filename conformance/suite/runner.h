// SPDX-License-Identifier: BSD-2-Clause
//
// Runs tests, each in a process of its own under its own time limit. This process opens no device and starts
// no thread: a fork of it is as good as a new program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "suite/options.h"
#include "suite/registry.h"
#include "suite/verdict.h"

namespace conformance {

struct Progress {
  const TestInfo* test;  // the one that has just ended
  const TestResult* result;
  size_t done, total;  // of this round
  size_t round;        // from 1 on
  std::chrono::milliseconds elapsed;
};

// Thrown by `told` to end the run: no further test can tell anything.
struct Stop {
  std::string reason;
};

struct RunResults {
  std::vector<TestResult> tests;  // one for each of `selected`, in its order
  size_t rounds = 0;              // that ended
  std::string stopped;            // why the run ended before all was done, or empty
};

// Runs all of `selected`, --repeat times or until --soak is over. `told` is called at the end of each test. A
// test that exceeds its limit is killed with all its processes and reported, and the next one goes on.
// SIGINT, SIGTERM and SIGHUP end the run; so does a process that cannot be killed, because its device keeps
// it in the kernel.
RunResults run_tests(const std::vector<const TestInfo*>& selected, const Options& options,
                     const std::function<void(const Progress&)>& told);

}  // namespace conformance
