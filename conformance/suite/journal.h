// SPDX-License-Identifier: BSD-2-Clause
//
// report.journal: what a run has found so far, one line for each test that has ended. It stays if the run
// ends before its report is written, and `verbs-conformance render` makes the report of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "suite/report.h"
#include "suite/runner.h"

namespace conformance {

// How the run began; the rest of a report follows from the tests.
struct RunHeader {
  Facts provenance, device;
  std::string command, began;
  std::string expectations;  // the file, or empty
};

class Journal {
 public:
  // Makes the folder and the file. Throws std::runtime_error if the reports could not be written there.
  Journal(const std::string& directory, const RunHeader& header,
          const std::vector<const TestInfo*>& selected);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Once a line cannot be written, nothing more is: what is there stays readable. error() says why.
  void add(const TestInfo& test, const TestResult& result);
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  // The reports are complete: they have all of it.
  void remove();

 private:
  void write(const std::string& line);

  std::string path_, error_;
  int descriptor_ = -1;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
};

struct JournalContents {
  RunHeader header;
  std::vector<const TestInfo*> selected;
  RunResults results;  // stopped: "the run ended ..."
  double seconds = 0;
};

// Is the file a journal, and not a report?
bool is_journal(const std::string& path);
// A line that is cut off is left out. Throws std::runtime_error for a journal of other clauses or tests.
JournalContents read_journal(const std::string& path);

}  // namespace conformance
