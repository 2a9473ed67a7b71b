// SPDX-License-Identifier: BSD-2-Clause
//
// The files of a report. Each is written beside its place and then renamed: a full disk leaves the former
// one.
#pragma once

#include <string>

#include "suite/report.h"

namespace conformance {

// report.json, report.xml and report.html in `directory`. Throws std::runtime_error.
void write_reports(const Report& report, const std::string& directory);

void write_file(const std::string& path, const std::string& text);  // throws std::runtime_error

}  // namespace conformance
