// SPDX-License-Identifier: BSD-2-Clause
//
// verbena trace: what the processes of a node do, and when.
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>

#include "adapter/clock.h"
#include "fabric/instruments.h"
#include "fabric/node.h"
#include "record/collector.h"
#include "survey/snapshot.h"
#include "tool/command.h"
#include "tool/environment.h"
#include "tool/program.h"
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

struct Session {
  std::vector<Variable> environment;
  std::string node;
  NodeDirectory directory;
};

int open_node(const TraceOptions& options, Session* session) {
  std::string problem;
  if (prepare(options.node, getpid(), &session->environment, &problem) != 0) return failed(problem);
  for (const Variable& variable : session->environment)
    if (variable.name == kNodeVariable) session->node = variable.value;
  if (const int error = session->directory.open(directory_path(session->node).c_str()); error != 0)
    return failed("cannot read the node " + session->node + ": " + std::strerror(error));
  return 0;
}

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
  std::ofstream file;
  if (options.file != "-") file.open(options.file);
  std::ostream& out = options.file == "-" ? std::cout : file;
  out << text << std::flush;
  if (!out) return failed("cannot write to " + options.file);
  std::fprintf(stderr, "verbena: %zu events of %zu processes%s%s; %llu older ones were overwritten\n",
               timeline.events.size(), timeline.processes.size(), options.file == "-" ? "" : " in ",
               options.file == "-" ? "" : options.file.c_str(),
               static_cast<unsigned long long>(timeline.lost));
  return 0;
}

int run_and_trace(const TraceOptions& options, Session& session) {
  uint32_t index = 0;
  if (add_instrument(session.directory, session.node, wish_of(options), &index) != 0)
    return failed("there are " + std::to_string(kMaxInstruments) + " instruments on this node already");
  signal(SIGINT, SIG_IGN);  // the program's: it ends, and what it has done is written
  sigset_t none;
  sigemptyset(&none);
  const pid_t child = start(options.program, session.environment, options.file == "-", none);
  if (child < 0) return failed(std::string("cannot start a process: ") + std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  record::Collector collector(session.directory, session.node);
  const Timeline timeline = gather(collector, options.last);
  const bool is_last = count_instruments(session.directory) == 1;
  remove_instrument(session.directory, session.node, index);
  if (is_last) collector.remove_all();
  const int written = write(options, timeline);
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : written;
}

int trace(const TraceOptions& options) {
  Session session;
  if (const int error = open_node(options, &session); error != 0) return error;
  if (!options.program.empty()) return run_and_trace(options, session);
  record::Collector collector(session.directory, session.node);
  int result = 0;
  if (options.dump) result = write(options, gather(collector, options.last));
  if (options.start && set_lasting_instrument(session.directory, session.node, wish_of(options)) != 0)
    return failed("there are " + std::to_string(kMaxInstruments) + " instruments on this node already");
  if (options.stop) {
    set_lasting_instrument(session.directory, session.node, {});
    if (count_instruments(session.directory) == 0) {
      collector.collect(0, [](auto...) {});
      collector.remove_all();
    }
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
  command->add_option("--last", options->last, "the last so many seconds alone")->type_name("SECONDS");
  command
      ->add_option("--ring", options->ring_mib, "memory for the records of each process, MiB, a power of two")
      ->type_name("MIB")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  CLI::Option* const start =
      command->add_flag("--start", options->start, "record what all programs of the node do");
  CLI::Option* const stop = command->add_flag("--stop", options->stop, "end that");
  command->add_flag("--dump", options->dump, "write what has been recorded");
  start->excludes(stop);
  command->callback([command, options, &line] {
    keep_node(*command, options->node);
    check_network_options(options->node);
    options->program = program_of(*command, line);
    if (!std::has_single_bit(options->ring_mib)) throw UsageError{"trace: --ring: a power of two"};
    const bool commands = options->start || options->stop || options->dump;
    if (options->program.empty() == !commands)
      throw UsageError{"trace: a program, or --start, --stop or --dump (see verbena trace --help)"};
    line.action = [options] { return trace(*options); };
  });
}

}  // namespace verbena::tool
