// SPDX-License-Identifier: BSD-2-Clause
//
// Findings of `verbena check` for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "tool/check_findings.h"

namespace verbena::tool {

// Several lines, the last with its line feed.
std::string text_of(const CheckFinding& finding);

// {"version": 1, "findings": [{"rule", "level", "group", "title", "what", "text", "source", "remedy", "pid",
// "program", "objects", "processes", "calls": [{"what", "stack": [{"function", "file", "line", "module",
// "offset"}]}]}]}
std::string json_of(const std::vector<CheckFinding>& findings);

// SARIF 2.1.0 (OASIS): one run, with the rules that were broken.
std::string sarif_of(const std::vector<CheckFinding>& findings);

// What --list prints: every rule, or those whose id is among `ids`.
std::string list_of_rules();

}  // namespace verbena::tool
