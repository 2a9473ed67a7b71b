// SPDX-License-Identifier: BSD-2-Clause
//
// Do clauses and tests fit together? Run by the build after linking; any fault fails the build.
#pragma once

#include <string>
#include <vector>

namespace conformance {

// One line for each: a clause without a test that is neither untestable nor pending, a clause that is one of
// these and has a test all the same, a test without a clause, with an unknown one, of an unknown chapter, or
// of a name that another has.
std::vector<std::string> audit();

}  // namespace conformance
