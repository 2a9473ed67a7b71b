// SPDX-License-Identifier: BSD-2-Clause
//
// verbs-conformance compare a.json b.json ...: a matrix of clauses and devices, and what became better and
// worse since the first report. verbs-conformance history: the same over many reports of one device.
#pragma once

#include <string>
#include <vector>

#include "suite/document.h"

namespace conformance {

// From the first report to a later one. A clause that one of them lacks is neither.
enum class Change : uint8_t {
  none,
  better,   // DEVIATES before, not so now; or it is now claimed
  worse,    // DEVIATES now, not so before; or what conformed is no longer claimed
  untested  // it was tested before
};

Change change_of(Verdict before, Verdict after);

struct Filter {
  std::vector<std::string> verdicts, levels, chapters;  // empty: all
};

struct Comparison {
  struct Cell {
    bool is_there = false;  // the report has the clause
    Verdict verdict = Verdict::not_tested;
    bool is_expected = false, is_flaky = false;
    std::string detail;
    Change change = Change::none;  // from the first report
  };
  struct Row {
    std::string id, chapter, level, promise;
    std::vector<Cell> cells;  // one for each report
  };
  std::vector<std::string> names;  // of the devices, made different by the file where they are the same
  std::vector<Document> documents;
  std::vector<Row>
      rows;  // where the verdicts differ or one deviates, and the filter lets it through; deviations first
  std::vector<size_t> better, worse, untested;  // of each report, against the first; not filtered
  std::vector<std::string> warnings;            // what makes the reports hard to compare
  size_t differing = 0;                         // of the rows: where verdicts differ
  bool is_worse() const;
};

// Throws std::runtime_error for a file that is no report.
Comparison compare_reports(const std::vector<std::string>& paths, const Filter& filter);
std::string to_text(const Comparison& comparison);
std::string to_html(const Comparison& comparison);  // compare_page.cc

}  // namespace conformance
