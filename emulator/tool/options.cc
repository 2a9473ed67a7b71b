// SPDX-License-Identifier: BSD-2-Clause
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "fabric/node.h"
#include "tool/command.h"
#include "tool/profile.h"

namespace verbena::tool {

void add_node_options(CLI::App& command, NodeOptions& options) {
  static const std::map<std::string, LinkLayer> kLinkLayers = {{"ethernet", LinkLayer::kEthernet},
                                                               {"infiniband", LinkLayer::kInfiniband}};
  command.add_option("--devices", options.devices.count, "how many devices: verbena0, verbena1, ...")
      ->check(CLI::Range(1u, kMaxDevices))
      ->type_name("N");
  command
      .add_option_function<std::string>(
          "--link-layer",
          [&options](const std::string& word) { options.devices.link_layer = kLinkLayers.at(word); },
          "ethernet (as RoCE v2: addressed by GID) or infiniband (addressed by LID)")
      ->check(CLI::IsMember({"ethernet", "infiniband"}))
      ->type_name("LAYER");
  command
      .add_option_function<std::string>(
          "--profile",
          [&options](const std::string& word) {
            std::string problem;
            if (!read_profile(word, &options.devices.limits, &problem)) throw UsageError{problem};
          },
          "what the devices offer: default, minimal, rxe, or a file (docs/PROFILES.md)")
      ->type_name("PROFILE");
  command
      .add_option("--node", options.name, "a node of its own: only programs on the same node see each other")
      ->check(
          [](const std::string& name) {
            return valid_node_name(name)
                       ? std::string()
                       : "'" + name +
                             "' is no node name: 1 to 24 letters, digits, '.', '_', '-', no '.' first";
          },
          "")
      ->type_name("NAME");
}

bool names_node(const CLI::App& command) {
  return command.count("--devices") + command.count("--link-layer") + command.count("--profile") +
             command.count("--node") !=
         0;
}

std::vector<std::string> program_of(const CLI::App& command, const CommandLine& line) {
  std::vector<std::string> program = command.remaining();
  if (!program.empty() && program[0].size() > 1 && program[0][0] == '-')
    throw UsageError{"no such option: " + program[0]};
  // A "--" behind the program's name is the program's own.
  if (!program.empty() && line.has_tail) program.push_back("--");
  program.insert(program.end(), line.tail.begin(), line.tail.end());
  return program;
}

int failed(const std::string& problem) {
  std::fprintf(stderr, "verbena: %s\n", problem.c_str());
  return kFailed;
}

}  // namespace verbena::tool
