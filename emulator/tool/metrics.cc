// SPDX-License-Identifier: BSD-2-Clause
//
// verbena metrics: the counters of this user's nodes for Prometheus.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "survey/snapshot.h"
#include "tool/command.h"
#include "tool/metrics_text.h"
#include "tool/node_choice.h"

namespace verbena::tool {
namespace {

struct MetricsOptions {
  NodeChoice nodes;
  bool each_qp = false;
};

int metrics(const MetricsOptions& options) {
  std::vector<NodeSnapshot> nodes;
  bool good = true;
  for (const std::string& path : nodes_of(options.nodes)) {
    nodes.push_back(look_at_objects(path));
    good = good && nodes.back().problem.empty();
  }
  std::fputs(metrics_as_text(nodes, options.each_qp).c_str(), stdout);
  if (printed() != 0) return kFailed;
  return good ? 0 : kFailed;
}

}  // namespace

void add_metrics(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("metrics", "print the counters of this user's nodes for Prometheus");
  command->footer(
      "Chooses nodes as `verbena status` does. The format is Prometheus' text format, as its textfile "
      "collector\n"
      "reads it. The counters of ports are those of /sys/class/infiniband/DEVICE/ports/N/hw_counters\n"
      "and .../counters.\n"
      "The exit status is 1 when a node cannot be read.\n\n"
      "Examples:\n"
      "  verbena metrics\n"
      "  verbena metrics --node mine --qps > verbena.prom.new && mv verbena.prom.new verbena.prom");
  auto options = std::make_shared<MetricsOptions>();
  add_node_choice(*command, options->nodes);
  command->add_flag("--qps", options->each_qp, "the counters of each QP as well");
  command->callback([command, options, &line] {
    if (line.has_tail) throw UsageError{"metrics takes no program"};
    check_node_choice(*command, options->nodes);
    line.action = [options] { return metrics(*options); };
  });
}

}  // namespace verbena::tool
