// SPDX-License-Identifier: BSD-2-Clause
//
// verbs-conformance compare a.json b.json ...: the clauses on which devices differ. Each is a report.json, or what
// conformance/expectations/shrink makes of one.
#pragma once

#include <string>
#include <vector>

namespace conformance {

struct Comparison {
  struct Row {
    std::string id, promise;
    std::vector<std::string> verdicts;  // one for each device; "-" where its report does not have the clause
    std::vector<std::string> details;
  };
  std::vector<std::string> devices;         // names, made different by the file where they are the same
  std::vector<std::vector<size_t>> counts;  // of each device: CONFORMS, DEVIATES, NOT CLAIMED, NOT TESTED
  std::vector<Row> rows;                    // only where the verdicts differ
};

// Throws std::runtime_error for a file that is no report.
Comparison compare_reports(const std::vector<std::string>& paths);
std::string to_text(const Comparison& comparison);
std::string to_html(const Comparison& comparison);

}  // namespace conformance
