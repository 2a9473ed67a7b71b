// SPDX-License-Identifier: BSD-2-Clause
//
// The process that runs one test, and the lines it sends to its parent.
#pragma once

#include <string>

#include "suite/options.h"
#include "suite/registry.h"
#include "suite/trace.h"
#include "suite/verdict.h"

namespace conformance {

// Runs the test in this process and writes its findings to `descriptor` as they come, then an end mark. Ends
// the process.
[[noreturn]] void run_in_child(const TestInfo& test, const Options& options, Trace& trace, int descriptor);

// Parent: reads what a child has written until its end.
void read_findings(const std::string& bytes, TestResult& result);

// Within a child, for test.cc.
void report_finding(Finding::Kind kind, std::optional<ClauseId> about, const std::string& text);

}  // namespace conformance
