// SPDX-License-Identifier: BSD-2-Clause
//
// verbs-conformance history: many reports, in the order in which they were made; what each changed against
// the one before it of the same device.
#pragma once

#include <string>
#include <vector>

#include "suite/document.h"

namespace conformance {

struct History {
  struct Run {
    Document document;
    std::vector<std::string> better, worse;  // clauses, against the former run of the device of this name
    bool is_first = false;                   // of its device
    bool has_other_clauses = false;          // than that former run: a change may be the suite's
  };
  std::vector<Run> runs;  // oldest first
};

History history_of(const std::vector<std::string>& paths);
std::string to_text(const History& history);
std::string to_html(const History& history);

}  // namespace conformance
