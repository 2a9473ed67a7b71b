// SPDX-License-Identifier: BSD-2-Clause
#include "tool/node_choice.h"

#include <CLI/CLI.hpp>

#include "fabric/node.h"
#include "survey/snapshot.h"
#include "tool/environment.h"

namespace verbena::tool {

void add_node_choice(CLI::App& command, NodeChoice& choice) {
  add_node_options(command, choice.node);
  command.add_flag("--all", choice.all, "all nodes of this user");
}

void check_node_choice(const CLI::App& command, NodeChoice& choice) {
  keep_node(command, choice.node);
  check_network_options(choice.node);
  choice.chosen = names_node(command);
  if (choice.all && choice.chosen)
    throw UsageError{command.get_name() + ": --all shows every node: name none"};
}

std::vector<std::string> nodes_of(const NodeChoice& choice) {
  if (choice.chosen) return {node_path(choice.node.name, choice.node.devices)};
  if (choice.all) {
    std::vector<std::string> nodes;
    for (const std::string& folder : all_nodes_folders())
      for (std::string& node : nodes_in(folder)) nodes.push_back(std::move(node));
    return nodes;
  }
  const std::string here = current_environment(kNodeVariable);
  if (!here.empty()) return {here};
  return nodes_in(nodes_folder());
}

}  // namespace verbena::tool
