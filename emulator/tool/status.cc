// SPDX-License-Identifier: BSD-2-Clause
//
// verbena status: shows the processes and objects on the nodes of this user.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "survey/snapshot.h"
#include "tool/command.h"
#include "tool/node_choice.h"
#include "tool/status_report.h"

namespace verbena::tool {
namespace {

struct StatusOptions {
  NodeChoice nodes;
  bool json = false;
};

int status(const StatusOptions& options) {
  std::vector<NodeSnapshot> nodes;
  bool good = true;
  for (const std::string& path : nodes_of(options.nodes)) {
    nodes.push_back(look_at_node(path));
    good = good && nodes.back().problem.empty();
  }
  const std::string report = options.json ? status_as_json(nodes) : status_as_text(nodes);
  std::fputs(report.c_str(), stdout);
  if (printed() != 0) return kFailed;
  return good ? 0 : kFailed;
}

}  // namespace

void add_status(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("status", "show the processes, QPs, CQs, MRs and rdma_cm ids on this user's nodes");
  command->footer(
      "Shows the node of the options; without options that of VERBENA_NODE; without that all nodes in the\n"
      "usual folder. Within `verbena run` options that are not given are those of its node. --all: all nodes\n"
      "of this user, in all folders that they may be in.\n"
      "SQ: work requests not completed; RQ: receives waiting; OUT, IN: requests and their bytes;\n"
      "DROP: messages that a UC or UD QP has dropped. Datagrams that no QP takes are counted for the\n"
      "device: in the node's line, and as stray_datagrams.\n"
      "A UD QP's receive queue is listed as an SRQ.\n"
      "Listeners are the CM ids with a BACKLOG; GROUP: what rdma_join_multicast has joined.\n"
      "NODE: connections to processes of other nodes, their bytes, and what the kernel has sent again.\n"
      "Below the tables: the last error of each QP, sends that wait for a receive request of the peer,\n"
      "receive requests that no message comes for, and CQs whose waiter would sleep on.\n"
      "The exit status is 1 when a node cannot be read.\n\n"
      "Examples:\n"
      "  verbena status\n"
      "  verbena status --node mine\n"
      "  verbena status --all\n"
      "  verbena status --json | jq '.nodes[].processes[].qps[] | {qpn, state, peer}'\n"
      "  verbena status --json | jq '.nodes[].processes[].cm_ids[] | select(.backlog != null)'");
  auto options = std::make_shared<StatusOptions>();
  add_node_choice(*command, options->nodes);
  command->add_flag("--json", options->json, "the same as JSON");
  command->callback([command, options, &line] {
    if (line.has_tail) throw UsageError{"status takes no program"};
    check_node_choice(*command, options->nodes);
    line.action = [options] { return status(*options); };
  });
}

}  // namespace verbena::tool
