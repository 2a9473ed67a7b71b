// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

#include "suite/document.h"

namespace conformance {

// The report for people: one file that loads nothing, of this run or of an old report.json.
std::string to_html(const Document& document);

}  // namespace conformance
