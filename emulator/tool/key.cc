// SPDX-License-Identifier: BSD-2-Clause
//
// verbena key: makes a key for the nodes of a fabric.
#include "wire/key.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tool/command.h"
#include "tool/file_size_signal.h"

namespace verbena::tool {
namespace {

int key(const std::string& file) {
  const FileSizeSignalIgnored no_signal;
  std::string problem;
  return wire::make_key(file, &problem) == 0 ? 0 : failed(problem);
}

}  // namespace

void add_key(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("key", "make a key for a fabric of several machines");
  command->footer(
      "The file must not exist. Any process that can read it can join the fabric: it is made for its owner "
      "alone "
      "(mode 0600), and\n"
      "refused when others can read it. Without --key the nodes of one user on one machine share a key by "
      "themselves.\n\n"
      "Examples:\n"
      "  verbena key fabric.key; scp -p fabric.key other:\n"
      "  verbena run --ip 192.0.2.1 --key fabric.key -- PROGRAM");
  auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file, "where the key goes")->required();
  command->callback([file, &line] {
    if (line.has_tail) throw UsageError{"key takes no program"};
    line.action = [file] { return key(*file); };
  });
}

}  // namespace verbena::tool
