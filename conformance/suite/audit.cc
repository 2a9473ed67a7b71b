// SPDX-License-Identifier: BSD-2-Clause
#include "suite/audit.h"

#include <algorithm>
#include <set>

#include "suite/registry.h"

namespace conformance {

std::vector<std::string> audit() {
  std::vector<std::string> faults;
  std::vector<bool> tested(clauses().size());
  std::set<std::string> names;
  for (const TestInfo& test : tests()) {
    const std::string where =
        std::string(test.file) + ":" + std::to_string(test.line) + ": " + test.full_name();
    if (!names.insert(test.full_name()).second) faults.push_back(where + ": another test has this name");
    if (test.clauses.empty()) faults.push_back(where + ": a test without a clause");
    for (const std::string& id : test.unknown_clauses) faults.push_back(where + ": no clause '" + id + "'");
    if (std::none_of(chapters().begin(), chapters().end(), [&](auto& c) { return c.key == test.chapter; }))
      faults.push_back(where + ": no chapter '" + test.chapter + "'");
    for (const ClauseId id : test.clauses) tested[id.index()] = true;
  }
  for (size_t i = 0; i < clauses().size(); ++i) {
    const Clause& clause = clauses()[i];
    const std::string id(clause.id);
    const bool excused = !clause.untestable.empty() || !clause.pending.empty();
    if (!tested[i] && !excused)
      faults.push_back(id + ": a clause without a test (or 'untestable', 'pending')");
    if (tested[i] && excused) faults.push_back(id + ": has a test: take 'untestable' or 'pending' away");
  }
  return faults;
}

}  // namespace conformance
