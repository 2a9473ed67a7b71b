// SPDX-License-Identifier: BSD-2-Clause
//
// Findings that the user does not want to see, in files of valgrind's form:
//
//   {
//     a name of one's own
//     verbena:leak-mr          the id of a rule; * and ? are wildcards here and below
//     fun:make_buffers         the frames of the first stack, from the innermost on: fun:, obj: or src:
//     ...                      any number of frames
//     obj:*/libthing.so*
//   }
//
// Frames that are not named may follow. Lines that begin with # are comments. Entries of other tools are
// skipped.
#pragma once

#include <string>
#include <vector>

#include "tool/check_findings.h"

namespace verbena::tool {

struct Suppression {
  std::string rule;                 // a pattern
  std::vector<std::string> frames;  // "fun:...", "obj:...", "src:..." or "..."
};

// Appends the entries of the file at `path`. False: *problem says what is wrong.
bool read_suppressions(const std::string& path, std::vector<Suppression>* out, std::string* problem);

// The first entry that matches. nullptr: there is none.
const Suppression* find_suppression(const std::vector<Suppression>& all, const CheckFinding& finding);

// An entry that suppresses `finding`.
std::string suppression_of(const CheckFinding& finding);

}  // namespace verbena::tool
