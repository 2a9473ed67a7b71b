// SPDX-License-Identifier: BSD-2-Clause
//
// verbena clean: removes the nodes of this user that no process uses.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "fabric/node.h"
#include "fabric/node_removal.h"
#include "tool/command.h"
#include "survey/snapshot.h"

namespace verbena::tool {
namespace {

const char* describe(Removal removal, bool only_look) {
  switch (removal) {
    case Removal::kRemoved:
      return only_look ? "would be removed" : "removed";
    case Removal::kInUse:
      return "kept: a process uses it";
    default:
      return "kept: it cannot be locked or removed";
  }
}

struct CleanOptions {
  bool only_look = false;
  bool here = false;
};

int clean(const CleanOptions& options) {
  const bool only_look = options.only_look;
  uint32_t removed = 0;
  bool good = true;
  for (const std::string& folder : options.here ? std::vector{nodes_folder()} : all_nodes_folders()) {
    for (const std::string& node : nodes_in(folder)) {
      const Removal removal = remove_node(node, {.with_ports = true, .only_look = only_look});
      if (removal == Removal::kNoNode) continue;
      std::printf("%s: %s\n", node.c_str(), describe(removal, only_look));
      removed += removal == Removal::kRemoved;
      good = good && removal != Removal::kFailed;
    }
    if (!only_look) sweep_nodes(folder);
  }
  std::printf("%u %s %s\n", removed, removed == 1 ? "node" : "nodes", describe(Removal::kRemoved, only_look));
  if (printed() != 0) return kFailed;
  return good ? 0 : kFailed;
}

}  // namespace

void add_clean(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("clean", "remove the nodes of this user that no process uses");
  command->footer(
      "A node goes with its last process, or with the next `verbena run` of its user. This removes what is "
      "left\n"
      "at once, in all folders that nodes may be in, also nodes whose port is down (verbena event). A node "
      "is in\n"
      "use while a process has its device open, and while the program or shell of its `verbena run` or\n"
      "`verbena env` lives.\n\n"
      "Examples:\n"
      "  verbena clean --dry-run\n"
      "  verbena clean");
  auto options = std::make_shared<CleanOptions>();
  command->add_flag("--dry-run", options->only_look, "only say what would be removed");
  command->add_flag("--here", options->here, "only in the folder where `verbena run` makes nodes");
  command->callback([options, &line] {
    if (line.has_tail) throw UsageError{"clean takes no program"};
    line.action = [options] { return clean(*options); };
  });
}

}  // namespace verbena::tool
