// SPDX-License-Identifier: BSD-2-Clause
//
// Which nodes a command shows: that of its options; without options that of VERBENA_NODE; without that all
// nodes in the usual folder, or with --all in all folders that nodes of this user may be in.
#pragma once

#include <string>
#include <vector>

#include "tool/command.h"

namespace verbena::tool {

struct NodeChoice {
  NodeOptions node;
  bool chosen = false;  // the command line names one node
  bool all = false;
};

// Adds --all and the options that choose a node. `choice` must live until the action has returned.
void add_node_choice(CLI::App& command, NodeChoice& choice);

// Throws UsageError if the options contradict each other. Called after parsing.
void check_node_choice(const CLI::App& command, NodeChoice& choice);

// Their paths.
std::vector<std::string> nodes_of(const NodeChoice& choice);

}  // namespace verbena::tool
