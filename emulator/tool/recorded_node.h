// SPDX-License-Identifier: BSD-2-Clause
//
// The node whose processes `verbena capture` and `verbena trace` let write records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/node_directory.h"
#include "tool/command.h"
#include "tool/environment.h"

namespace verbena::tool {

struct RecordedNode {
  std::vector<Variable> environment;  // of programs on it
  std::string path;
  NodeDirectory directory;

  // Finds or makes the node, which stays while this process lives. 0, or kFailed with *problem.
  int open(const NodeOptions& options, std::string* problem);
};

// What to say when add_instrument() finds no entry.
std::string too_many_instruments();

// --ring of `command`: MiB.
void add_ring_option(CLI::App& command, uint32_t* mib);
// Throws UsageError.
void check_ring_option(const std::string& command, uint32_t mib);

}  // namespace verbena::tool
