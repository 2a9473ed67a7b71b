// SPDX-License-Identifier: BSD-2-Clause
//
// verbena doctor: finds what would keep Verbena from working on this machine, and says what to do about it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "fabric/node.h"
#include "fabric/private_folder.h"
#include "tool/command.h"
#include "tool/file_size_signal.h"
#include "tool/finding.h"

namespace verbena::tool {
namespace {

const char* verdict_word(Verdict verdict) {
  constexpr const char* kWords[] = {"good", "note", "BAD "};
  return kWords[static_cast<int>(verdict)];
}

int report(const Findings& findings, const char* consequence) {
  for (const Finding& finding : findings) {
    std::printf("%s  %s: %s\n", verdict_word(finding.verdict), finding.where.c_str(), finding.what.c_str());
    if (!finding.remedy.empty()) std::printf("      remedy: %s\n", finding.remedy.c_str());
  }
  const auto bad = std::count_if(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
  if (bad == 0)
    std::printf("Nothing stands in the way.\n");
  else
    std::printf("%d of %d %s.\n", static_cast<int>(bad), static_cast<int>(findings.size()), consequence);
  if (printed() != 0) return kFailed;
  return bad == 0 ? 0 : kFailed;
}

struct DoctorOptions {
  NodeOptions node;
  std::string peer;
};

void examine_way(const DoctorOptions& options, Findings* findings) {
  const NetworkOptions& network = options.node.devices.network;
  if (network.kind == NetworkKind::kRoce) {
    const auto code = describe_devices(options.node.devices).devices[0].active_mtu;  // enum ibv_mtu
    return examine_roce_peer({options.peer, {network.addresses[0]}, 128u << code}, findings);
  }
  std::string problem;
  if (ensure_private_folder(nodes_folder(), &problem) != 0)
    return findings->push_back({Verdict::kBad, nodes_folder(), problem, ""});
  PeerProbe probe{options.peer, network.port, {}, options.node.key_file};
  if (!network.addresses.empty()) probe.from = {network.addresses[0]};
  examine_peer(probe, findings);
}

int doctor(const DoctorOptions& options, const std::vector<std::string>& program) {
  const FileSizeSignalIgnored no_signal;
  Findings findings;
  if (!options.peer.empty()) {
    examine_way(options, &findings);
    return report(findings, "would keep programs here from that node");
  }
  if (!program.empty()) examine_program(program[0], &findings);
  for (const auto examine : {examine_installation, examine_rdma_libraries, examine_device_file,
                             examine_limits, examine_environment, examine_node})
    examine(&findings);
  return report(findings, "would keep a program from its device");
}

}  // namespace

void add_doctor(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("doctor", "find what would keep a program from its device here");
  command->footer(
      "Looks at the machine, and at the program when one is named; the program is not run.\n"
      "The exit status is 0 when all is good, 1 when something would fail.\n\n"
      "Examples:\n"
      "  verbena doctor\n"
      "  verbena doctor ./my-program\n"
      "  verbena doctor --peer 192.0.2.2 --key fabric.key       the way to another node, instead\n"
      "  verbena doctor --peer 192.0.2.2 --roce 192.0.2.1       the way of RoCE v2 packets to any end");
  command->prefix_command();
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("--peer", options->peer, "go the way to the node at this address or name")
      ->type_name("HOST");
  add_network_options(*command, options->node);
  command->callback([command, options, &line] {
    const std::vector<std::string> program = program_of(*command, line);
    if (!options->peer.empty() && !program.empty()) throw UsageError{"doctor: --peer, or a program"};
    line.action = [options, program] { return doctor(*options, program); };
  });
}

}  // namespace verbena::tool
