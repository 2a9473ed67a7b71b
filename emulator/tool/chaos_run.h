// SPDX-License-Identifier: BSD-2-Clause
//
// The program of `verbena run --chaos`.
#pragma once

#include <string>
#include <vector>

namespace verbena::tool {

// Runs the program as a child, and hands on the signals that are sent to this process. If the program fails,
// says on standard error how it ended, and the command that repeats its faults. Returns its exit status, or
// ends by the signal that has ended it. If this process is killed, so is the program.
int run_under_chaos(const std::vector<std::string>& program);

// The words as a shell takes them.
std::string quoted(const std::vector<std::string>& words);

}  // namespace verbena::tool
