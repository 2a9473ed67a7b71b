// SPDX-License-Identifier: BSD-2-Clause
//
// The seam between the command line and the subcommands. Each subcommand lies in a file of its own and adds
// itself to the command line; main() parses, then does what the chosen one left in `action`.
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
  std::vector<std::string> tail;  // what stood behind the first "--", if that was there
  bool has_tail = false;
  std::function<int()> action;  // answers the exit status
};

// A misuse of the command line that only the subcommand can see. main() prints it in one line and exits 2.
struct UsageError {
  std::string message;
};

void add_run(CLI::App& app, CommandLine& line);
void add_env(CLI::App& app, CommandLine& line);
void add_status(CLI::App& app, CommandLine& line);
void add_event(CLI::App& app, CommandLine& line);
void add_doctor(CLI::App& app, CommandLine& line);
void add_probe(CLI::App& app, CommandLine& line);
void add_key(CLI::App& app, CommandLine& line);

// --devices, --link-layer, --profile, --node, and of the network: --ip, --net, --port, --key.
struct NodeOptions {
  DeviceTableOptions devices;  // network.key: after prepare() only
  std::string name;
  std::string key_file;  // "": the user's own key
};

// Adds the options that choose a node to `command`; `options` must live until the action has been done.
void add_node_options(CLI::App& command, NodeOptions& options);

// The part of them that concerns the network.
void add_network_options(CLI::App& command, NodeOptions& options);

// Throws UsageError where options of the network do not go together. After parsing.
void check_network_options(const NodeOptions& options);

// Whether one of them was given. After parsing.
bool names_node(const CLI::App& command);

// The program and its arguments: what CLI11 left over as it stood behind the last option, and the tail.
// Throws UsageError when it begins with an option nobody knows.
std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line);

// Prints "verbena: `problem`" to stderr and answers kFailed.
int failed(const std::string& problem);

}  // namespace verbena::tool
