// SPDX-License-Identifier: BSD-2-Clause
//
// The verdict on a clause, and how it follows from what its tests saw. Pure: no device, no files.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "suite/clause.h"

namespace conformance {

enum class Verdict : uint8_t {
  conforms,     // at least one test of it ran to the end and saw what is promised, and none saw anything else
  deviates,     // a test saw something else, crashed or hung
  not_claimed,  // the device says that it does not have this, and refuses properly
  not_tested,   // nothing ran that could tell; the detail says why
};

std::string_view name_of(Verdict verdict);  // "CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"
std::optional<Verdict> verdict_named(std::string_view name);

// A finding of a test besides "as promised".
struct Finding {
  enum class Kind : char { deviation = 'D', not_claimed = 'C', not_tested = 'N', observation = 'O' };
  Kind kind;
  std::optional<ClauseId> about;  // nothing: about all clauses of the test
  std::string text;
};

struct TestResult {
  enum class End : uint8_t { finished, crashed, hung, not_run };
  End end = End::not_run;
  std::string how;  // of a crash, a hang, or why it was not run
  std::vector<Finding> findings;
  std::vector<std::string> calls;  // the last verbs that the test called, oldest first
  std::chrono::milliseconds time{0};
  size_t runs = 1;                      // with --repeat: how often it ran
  size_t failures = 0;                  // in how many of them it deviated
  std::map<size_t, size_t> deviations;  // the same for each clause, by its index
};

// The result of one more run of the test, of these clauses, becomes part of `result`: what any run saw
// counts.
void add_run(TestResult& result, TestResult more, const std::vector<ClauseId>& clauses);
// Fills `failures` and `deviations` of a test that ran once.
void count_run(TestResult& result, const std::vector<ClauseId>& clauses);

Verdict verdict_of(const TestResult& result);
Verdict verdict_of(const TestResult& result, ClauseId about);
std::string detail_of(const TestResult& result, std::optional<ClauseId> about);

// Several tests of one clause: a deviation weighs most, then a gap, then conformance; not claimed is what
// remains.
Verdict combine(const std::vector<Verdict>& verdicts);

}  // namespace conformance
