// SPDX-License-Identifier: BSD-2-Clause
//
// verbena top: shows what the processes of this user's nodes do, again and again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "adapter/clock.h"
#include "survey/snapshot.h"
#include "tool/activity.h"
#include "tool/command.h"
#include "tool/node_choice.h"
#include "tool/top_screen.h"
#include "tool/top_view.h"

namespace verbena::tool {
namespace {

struct TopOptions {
  NodeChoice nodes;
  bool json = false;
  bool once = false;
  uint64_t count = 0;  // of reports; 0: without end
  std::string order = "bytes";
  TopState state;
};

std::vector<NodeSnapshot> look(const NodeChoice& nodes) {
  std::vector<NodeSnapshot> snapshots;
  for (const std::string& path : nodes_of(nodes)) {
    snapshots.push_back(look_at_objects(path));
    if (snapshots.back().problem.empty()) look_at_connections(&snapshots.back());
  }
  return snapshots;
}

// A report to stdout after every interval. The first one has rates, too.
int print(const TopOptions& options) {
  std::vector<NodeSnapshot> before = look(options.nodes);
  for (uint64_t i = 0; options.count == 0 || i < options.count; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.state.interval));
    std::vector<NodeSnapshot> now = look(options.nodes);
    Activity activity = activity_between(before, now);
    sort_activity(now, options.state.order, options.state.reversed, &activity);
    const std::string report = options.json ? top_as_json(now, activity) : top_as_text(now, activity);
    std::fputs(report.c_str(), stdout);
    if (printed() != 0) return kFailed;
    before = std::move(now);
  }
  return 0;
}

int show(TopOptions& options, TopScreen& screen) {
  TopState& state = options.state;
  std::vector<NodeSnapshot> before, now = look(options.nodes);
  int64_t looked_at = now_ns();
  while (!state.quits) {
    Activity activity = activity_between(before, now);
    sort_activity(now, state.order, state.reversed, &activity);
    screen.show(top_lines(now, activity, state, screen.rows()));
    const double passed = static_cast<double>(now_ns() - looked_at) / 1e9;
    // The first rates come soon.
    const double interval = before.empty() ? std::min(state.interval, 0.3) : state.interval;
    TopKey key;
    if (screen.wait(std::max(interval - passed, 0.0), &key)) {
      press(key, shown_qps(now, activity), screen.rows(), &state);
      continue;
    }
    if (state.paused) {
      looked_at = now_ns();
      continue;
    }
    before = std::move(now);
    now = look(options.nodes);
    looked_at = now_ns();
  }
  return 0;
}

int top(TopOptions& options) {
  if (options.json || options.once || options.count != 0) {
    if (options.once) options.count = 1;
    return print(options);
  }
  TopScreen screen;
  if (!screen.is_open())
    return failed("top needs a terminal that ncurses knows (TERM); --once, --count and --json do not");
  return show(options, screen);
}

}  // namespace

void add_top(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("top", "show the rates of processes and QPs on this user's nodes, live");
  command->footer(
      "Chooses nodes as `verbena status` does. Rates are per second.\n"
      "SQ: work requests not completed; RQ: receives waiting; OUT, IN: requests and bytes; CQ: how full the\n"
      "fuller CQ of the QP is; CM: ids of rdma_cm.\n"
      "Keys: s: sort by the next column; r: reverse; up, down, Enter: look into a QP; Esc: back; space: "
      "pause;\n"
      "+, -: more or less often; q: quit.\n\n"
      "Examples:\n"
      "  verbena top\n"
      "  verbena top --once --sort queue\n"
      "  verbena top --json --interval 5 | jq '.qps[] | select(.retries_per_s > 0)'");
  auto options = std::make_shared<TopOptions>();
  add_node_choice(*command, options->nodes);
  command->add_flag("--json", options->json, "one line of JSON after every interval");
  command->add_flag("--once", options->once, "one report after one interval, to standard output");
  check_whole_number(
      *command->add_option("--count", options->count, "so many reports, to standard output")->type_name("N"));
  command->add_option("--interval", options->state.interval, "seconds between two looks")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--sort", options->order, "the largest first: bytes, requests, retries, queue, cq; or pid")
      ->type_name("COLUMN")
      ->capture_default_str();
  command->add_flag("--reverse", options->state.reversed, "the smallest first");
  command->callback([command, options, &line] {
    if (line.has_tail) throw UsageError{"top takes no program"};
    check_node_choice(*command, options->nodes);
    if (!parse_sorting(options->order, &options->state.order))
      throw UsageError{"top: --sort is one of bytes, requests, retries, queue, cq, pid"};
    if (options->once && options->count > 1) throw UsageError{"top: --once is one report: give no --count"};
    line.action = [options] { return top(*options); };
  });
}

}  // namespace verbena::tool
