// SPDX-License-Identifier: BSD-2-Clause
//
// What the HTML pages have in common: one self-contained file, readable on a phone and on paper.
#pragma once

#include <string>

namespace conformance {

std::string page_begin(const std::string& title);  // title as plain text
std::string page_end();                            // with the script of the filters

}  // namespace conformance
