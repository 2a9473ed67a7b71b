// SPDX-License-Identifier: BSD-2-Clause
//
// A run: the device asked, the tests run, the reports written.
#pragma once

#include <string>
#include <vector>

#include "suite/options.h"
#include "suite/registry.h"

namespace conformance {

// Exit statuses of the program.
constexpr int ok = 0, deviations = 1, could_not_run = 2;

// One run, or with --all-ports and --all-gids one for each port and GID, in folders of their own. The exit
// status: the worst of them. Throws std::runtime_error if a run cannot begin.
int run_everywhere(const Options& options, const std::vector<const TestInfo*>& selected,
                   const std::string& command);

// The reports that an interrupted run would have written, into --report-dir or beside its journal. Exit
// status 2, as that run's.
int render_journal(const std::string& path, const Options& options);

}  // namespace conformance
