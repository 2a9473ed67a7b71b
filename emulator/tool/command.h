// SPDX-License-Identifier: BSD-2-Clause
//
// The interface between the command line and its subcommands. Each subcommand is in a file of its own, and
// adds itself to the command line. main() parses, then calls the `action` of the chosen subcommand.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "fabric/device_table.h"

namespace verbena::tool {

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

struct CommandLine {
  std::vector<std::string> tail;  // the words after the first "--"
  bool has_tail = false;          // there was a "--"
  std::function<int()> action;    // returns the exit status
};

// A misuse of the command line that only the subcommand detects. main() prints it in one line and exits with
// kUsage.
struct UsageError {
  std::string message;
};

void add_run(CLI::App& app, CommandLine& line);
void add_check(CLI::App& app, CommandLine& line);
void add_env(CLI::App& app, CommandLine& line);
void add_capture(CLI::App& app, CommandLine& line);
void add_trace(CLI::App& app, CommandLine& line);
void add_status(CLI::App& app, CommandLine& line);
void add_explain(CLI::App& app, CommandLine& line);
void add_top(CLI::App& app, CommandLine& line);
void add_metrics(CLI::App& app, CommandLine& line);
void add_event(CLI::App& app, CommandLine& line);
void add_doctor(CLI::App& app, CommandLine& line);
void add_probe(CLI::App& app, CommandLine& line);
void add_key(CLI::App& app, CommandLine& line);
void add_clean(CLI::App& app, CommandLine& line);

// --devices, --ports, --pkey, --lmc, --link-layer, --profile, --node; and for the network --ip, --net,
// --port, --key.
struct NodeOptions {
  DeviceTableOptions devices;  // network.key: after prepare() only
  std::string name;
  std::string key_file;  // "": the user's own key
  bool shared_heap = false;  // --shared-heap
  std::string existing;  // the path of a node that is there already; then the other members do not count
};

// Adds the options that choose a node to `command`. `options` must live until the action has returned.
void add_node_options(CLI::App& command, NodeOptions& options);

// Adds those of them that concern the network.
void add_network_options(CLI::App& command, NodeOptions& options);

// Adds --shared-heap.
void add_heap_option(CLI::App& command, NodeOptions& options);

// --ports, --pkey, --lmc.
void add_port_options(CLI::App& command, DeviceTableOptions& devices);

// Throws UsageError if options of the network or of the ports contradict each other. Called after parsing.
void check_network_options(const NodeOptions& options);

// Refuse values that are no whole number, or no number of seconds, 0 or more.
void check_whole_number(CLI::Option& option);
void check_seconds(CLI::Option& option);

// Is one of the options that choose a node given? Called after parsing.
bool names_node(const CLI::App& command);

// In the environment of another `verbena run` or `verbena env`: options that are not given are those of that
// node, and without any option it is that node itself. Its network is not taken over to another node, which
// could not listen at the same addresses. A node that cannot be read counts as none. Called after parsing.
void keep_node(const CLI::App& command, NodeOptions& options);

// The program and its arguments: the words that CLI11 left over behind the last option, and the tail. Throws
// UsageError if they begin with an unknown option.
std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line);

// Prints "verbena: `problem`" to stderr and returns kFailed.
int failed(const std::string& problem);

// Flushes standard output. 0; kFailed, after saying so, if not all of it could be written, also before.
int printed();

}  // namespace verbena::tool
