// SPDX-License-Identifier: BSD-2-Clause
//
// verbena trace: what the processes of a node do, and when.
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>

#include "adapter/clock.h"
#include "fabric/instruments.h"
#include "record/collector.h"
#include "survey/snapshot.h"
#include "tool/command.h"
#include "tool/output_file.h"
#include "tool/program.h"
#include "tool/recorded_node.h"
#include "tool/timeline.h"

namespace verbena::tool {
namespace {

struct TraceOptions {
  NodeOptions node;
  std::string file = "trace.json";
  bool text = false;
  double last = 0;  // seconds; 0: all that there is
  uint32_t ring_mib = 4;
  bool start = false, stop = false, dump = false;
  std::vector<std::string> program;
};

RecordWish wish_of(const TraceOptions& options) {
  return {kRecordTimeline, 0, static_cast<uint16_t>(options.ring_mib)};
}

Timeline gather(record::Collector& collector, double last) {
  Timeline timeline;
  timeline.to_wall_clock = static_cast<int64_t>(wall_clock_ns()) - now_ns();
  std::map<uint32_t, uint32_t> places;  // of rings
  collector.collect(kEndOfTime, [&](uint32_t ring, const record::RingOwner& owner,
                                    std::span<const std::byte> bytes) {
    TimelineEvent event;
    if (bytes.size() < sizeof event.record) return;
    std::memcpy(&event.record, bytes.data(), sizeof event.record);
    if (event.record.head.kind != record::Kind::kTimeline) return;
    const auto [place, is_new] = places.try_emplace(ring, static_cast<uint32_t>(timeline.processes.size()));
    if (is_new) timeline.processes.push_back({owner.pid, printable(owner.program, sizeof owner.program)});
    event.process = place->second;
    timeline.events.push_back(event);
  });
  timeline.lost = collector.lost();
  if (last > 0 && !timeline.events.empty()) {
    const int64_t from = timeline.events.back().record.head.time - static_cast<int64_t>(last * 1e9);
    std::erase_if(timeline.events,
                  [from](const TimelineEvent& event) { return event.record.head.time < from; });
  }
  return timeline;
}

int write(const TraceOptions& options, const Timeline& timeline) {
  const std::string text = options.text ? timeline_as_text(timeline) : timeline_as_json(timeline);
  std::string problem;
  if (options.file == "-") {
    if (!(std::cout << text << std::flush)) return failed("cannot write to standard output");
  } else if (!write_text(options.file, text, &problem)) {
    return failed(problem);
  }
  std::fprintf(stderr, "verbena: %zu events of %zu processes%s%s; %llu older ones were overwritten\n",
               timeline.events.size(), timeline.processes.size(), options.file == "-" ? "" : " in ",
               options.file == "-" ? "" : options.file.c_str(),
               static_cast<unsigned long long>(timeline.lost));
  return 0;
}

int run_and_trace(const TraceOptions& options, RecordedNode& node) {
  uint32_t index = 0;
  if (add_instrument(node.directory, node.path, wish_of(options), &index) != 0)
    return failed(too_many_instruments());
  signal(SIGINT, SIG_IGN);  // the program's: it ends, and what it has done is written
  sigset_t none;
  sigemptyset(&none);
  const pid_t child = start(options.program, node.environment, options.file == "-", none);
  if (child < 0) return failed(std::string("cannot start a process: ") + std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  record::Collector collector(node.directory, node.path);
  const Timeline timeline = gather(collector, options.last);
  const bool is_last = count_instruments(node.directory) == 1;
  remove_instrument(node.directory, node.path, index);
  if (is_last) collector.remove_all();
  const int written = write(options, timeline);
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : written;
}

int trace(const TraceOptions& options) {
  RecordedNode node;
  std::string problem;
  if (node.open(options.node, &problem) != 0) return failed(problem);
  if ((!options.program.empty() || options.dump) && !can_write(options.file, &problem))
    return failed(problem);
  if (!options.program.empty()) return run_and_trace(options, node);
  record::Collector collector(node.directory, node.path);
  int result = 0;
  if (options.dump) result = write(options, gather(collector, options.last));
  if (options.start && set_lasting_instrument(node.directory, node.path, wish_of(options)) != 0)
    return failed(too_many_instruments());
  if (options.stop) {
    set_lasting_instrument(node.directory, node.path, {});
    if (count_instruments(node.directory) == 0) collector.remove_all();
  }
  return result;
}

}  // namespace

void add_trace(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("trace", "show what the node's processes do, and when");
  command->footer(
      "Posted requests, their ends, responses, polls, state changes, events and messages of the connection\n"
      "manager, with an arrow from each SEND to its receive: JSON for https://ui.perfetto.dev or "
      "chrome://tracing,\n"
      "or text. Each process keeps its newest records in memory (--ring), also when it is killed. The exit "
      "status\n"
      "is the program's.\n\n"
      "Examples:\n"
      "  verbena trace -- ib_send_lat -F                 one program; see trace.json\n"
      "  verbena trace --text -o - -- PROGRAM            as text\n"
      "  verbena trace --start                           from now on, until --stop\n"
      "  verbena trace --dump --last 2                   the last two seconds, dead processes included");
  command->prefix_command();
  auto options = std::make_shared<TraceOptions>();
  add_node_options(*command, options->node);
  command->add_option("-o,--output", options->file, "write to this file; -: to standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_flag("--text", options->text, "one line for each event");
  check_seconds(
      *command->add_option("--last", options->last, "the last so many seconds alone")->type_name("SECONDS"));
  add_ring_option(*command, &options->ring_mib);
  CLI::Option* const start =
      command->add_flag("--start", options->start, "record what all programs of the node do");
  CLI::Option* const stop = command->add_flag("--stop", options->stop, "end that");
  command->add_flag("--dump", options->dump, "write what has been recorded");
  start->excludes(stop);
  command->callback([command, options, &line] {
    keep_node(*command, options->node);
    check_network_options(options->node);
    options->program = program_of(*command, line);
    check_ring_option("trace", options->ring_mib);
    const bool commands = options->start || options->stop || options->dump;
    if (options->program.empty() == !commands)
      throw UsageError{"trace: a program, or --start, --stop or --dump"};
    line.action = [options] { return trace(*options); };
  });
}

}  // namespace verbena::tool
