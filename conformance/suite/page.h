// SPDX-License-Identifier: BSD-2-Clause
//
// What the HTML pages have in common: one self-contained file, light or dark as its reader's system is,
// readable on a phone and on paper, complete without its script.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "suite/verdict.h"

namespace conformance {

std::string page_begin(const std::string& title);  // title as plain text
std::string page_end();                            // with the script of the filters

std::string css_class(Verdict verdict);  // "NOT-CLAIMED"
// The coloured word; "EXPECTED" of a known deviation.
std::string badge(Verdict verdict, bool is_expected = false);
// The class of a row and of a cell: "EXPECTED" for a known deviation.
std::string kind_of(Verdict verdict, bool is_expected);

// The beginning of a detail, in one line: what was expected and seen, not the place in the suite.
std::string in_short(const std::string& detail);

// Filters for elements with data-v (kind), data-c (chapter) and data-l (level); of use with the script only,
// which shows them. `chapters`: key and title.
std::string filters(const std::vector<std::pair<std::string, std::string>>& chapters);

}  // namespace conformance
