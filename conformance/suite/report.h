// SPDX-License-Identifier: BSD-2-Clause
//
// What a run has found: the verdict on each clause. document.h has the forms it is written in.
#pragma once

#include <string>
#include <vector>

#include "suite/expectations.h"
#include "suite/facts.h"
#include "suite/registry.h"
#include "suite/verdict.h"

namespace conformance {

struct TestReport {
  const TestInfo* test;
  TestResult result;
  Verdict verdict;
};

struct ClauseReport {
  ClauseId id;
  Verdict verdict;
  std::vector<std::string> tests;  // full names; those that were not selected as well
  std::string detail;
  const Expectation* expectation = nullptr;  // this deviation is known
};

struct Summary {
  size_t clauses = 0, conforms = 0, deviates = 0, not_claimed = 0, not_tested = 0;
  size_t untestable = 0, pending = 0;   // of not_tested
  size_t expected = 0, unexpected = 0;  // of deviates
  size_t tests = 0;                     // that were run
};

struct Report {
  Facts provenance, device;
  std::string command;  // the options in force
  std::string began;    // ISO 8601, UTC
  double seconds = 0;
  size_t rounds = 1;    // with --repeat and --soak: over all tests
  std::string stopped;  // why the run ended before all was done, or empty
  std::vector<TestReport> tests;
  std::vector<ClauseReport> clauses;  // in the order of the clauses files
  std::vector<std::string> stale;     // expected deviations that did not occur although their tests ran
  Summary summary;
};

// `results` in the order of `selected`.
Report make_report(const std::vector<const TestInfo*>& selected, std::vector<TestResult> results,
                   const std::vector<Expectation>& expectations);

std::string to_junit(const Report& report);
std::string to_text(const Report& report);  // the summary at the end of a run

// The reasons of this test's deviations; nothing if one of them is not expected.
std::vector<const Expectation*> expectations_of(const Report& report, const TestReport& test);

// &, <, >, " as entities; control characters as spaces; what is not UTF-8 as U+FFFD.
std::string escaped(const std::string& text);

}  // namespace conformance
