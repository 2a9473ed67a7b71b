// SPDX-License-Identifier: BSD-2-Clause
//
// verbena env: prints the environment of `verbena run` as lines for a shell.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tool/command.h"
#include "tool/environment.h"

namespace verbena::tool {
namespace {

int env(const NodeOptions& options) {
  std::vector<Variable> environment;
  std::string problem;
  // The shell that evaluates the lines; if that is another process, its programs make the node again.
  if (prepare(options, getppid(), &environment, &problem) != 0) return failed(problem);
  for (const Variable& variable : environment)
    std::printf("export %s=%s\n", variable.name.c_str(), shell_quoted(variable.value).c_str());
  return printed();
}

}  // namespace

void add_env(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("env", "print the environment of `verbena run` for a shell");
  command->footer(
      "Examples:\n"
      "  eval \"$(verbena env)\"; ibv_devinfo\n"
      "  verbena env --devices 2 > two-devices.sh");
  auto options = std::make_shared<NodeOptions>();
  add_node_options(*command, *options);
  add_heap_option(*command, *options);
  command->callback([command, options, &line] {
    if (line.has_tail) throw UsageError{"env takes no program: verbena run -- PROGRAM runs one"};
    keep_node(*command, *options);
    check_network_options(*options);
    line.action = [options] { return env(*options); };
  });
}

}  // namespace verbena::tool
