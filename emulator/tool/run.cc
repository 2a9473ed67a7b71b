// SPDX-License-Identifier: BSD-2-Clause
//
// verbena run: executes the program in its own place (exec), so that exit status, signals and pid are the
// program's. With --chaos it stays beside the program, to say how a failure is repeated.
#include <errno.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fabric/node.h"
#include "faults/plan.h"
#include "tool/chaos_run.h"
#include "tool/command.h"
#include "tool/environment.h"
#include "tool/faults_file.h"
#include "tool/finding.h"
#include "tool/program.h"
#include "tool/rdma_libraries.h"

namespace verbena::tool {
namespace {

// The program is run all the same: it may not use RDMA.
void warn_of_unknown_rdma_core() {
  Installation installation;
  std::string problem;
  if (find_installation(&installation, &problem) != 0) return;  // reported by prepare()
  const std::string unknown = unknown_rdma_core(installation);
  if (!unknown.empty()) std::fprintf(stderr, "verbena: %s\n", unknown.c_str());
}

// Nor do the programs that it starts see one: the loader takes LD_PRELOAD out of their environment.
void warn_of_rights(const std::string& program) {
  Findings findings;
  examine_rights(program, &findings);
  for (const Finding& each : findings)
    std::fprintf(stderr, "verbena: %s %s: it sees no device: %s\n", each.where.c_str(), each.what.c_str(),
                 each.remedy.c_str());
}

void warn_of_strangers(const NodeOptions& options) {
  const NetworkOptions& network = options.devices.network;
  if (!options.existing.empty() || network.kind != NetworkKind::kRoce) return;
  std::fprintf(
      stderr, "verbena: RoCE v2 has no authentication: %s\n",
      network.peer_ranges.empty()
          ? "any machine that can send packets to this address may try; --peers CIDR leaves out others"
          : "--peers leaves out others, but senders can be forged");
}

struct RunOptions {
  NodeOptions node;
  std::string faults;  // a file; "": none
  uint64_t chaos = 0;
  std::string link;
  bool has_chaos = false;
};

// --faults, --chaos and --link: what the programs do to themselves, and what happens to devices meanwhile.
// false: the programs need no plan.
bool plan_of(const RunOptions& options, faults::Plan* plan, Schedule* schedule) {
  std::string problem;
  if (!options.faults.empty() && !read_faults(options.faults, plan, schedule, &problem))
    throw UsageError{problem};
  if (options.has_chaos) *plan = faults::chaos(options.chaos);
  if (!options.link.empty() && !parse_link(options.link, &plan->link))
    throw UsageError{"run: --link is a rate, a latency or both: 25Gbps,2us"};
  return !plan->rules.empty() || plan->link != faults::Link{};
}

// The events of the schedule happen on the node of the environment.
int start_schedule_of(const std::vector<Variable>& environment, const Schedule& schedule) {
  for (const Variable& variable : environment)
    if (variable.name == kNodeVariable) return start_schedule(variable.value, schedule);
  return ENOENT;
}

int run(const RunOptions& run_options, const std::string& plan, const Schedule& schedule,
        const std::vector<std::string>& program) {
  const NodeOptions& options = run_options.node;
  std::vector<Variable> environment;
  std::string problem;
  if (prepare(options, getpid(), &environment, &problem) != 0) return failed(problem);
  warn_of_unknown_rdma_core();
  warn_of_strangers(options);
  warn_of_rights(program[0]);
  for (const Variable& variable : environment)
    if (setenv(variable.name.c_str(), variable.value.c_str(), 1) != 0) return failed(std::strerror(errno));
  if (!plan.empty() && setenv(faults::kVariable, plan.c_str(), 1) != 0) return failed(std::strerror(errno));
  if (!schedule.empty())
    if (const int error = start_schedule_of(environment, schedule); error != 0)
      return failed(error == EINVAL ? "the schedule names a device or port that the node does not have"
                                    : std::string("no schedule: ") + std::strerror(error));
  return run_options.has_chaos ? run_under_chaos(program) : become(program);
}

}  // namespace

void add_run(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("run", "run a program that sees the node's devices");
  command->footer(
      "The exit status is the program's; 127: not found, 126: cannot be run, 1: no node, 2: usage.\n\n"
      "Within another `verbena run` or `verbena env` the node, its devices and their profile are kept,\n"
      "but for what an option changes; --node default leads back to the usual node.\n\n"
      "Examples:\n"
      "  verbena run -- ibv_devinfo -v\n"
      "  verbena run -- ibv_rc_pingpong -g 1                    the server\n"
      "  verbena run -- ibv_rc_pingpong -g 1 localhost          and, in another shell, its client\n"
      "  verbena run --link-layer infiniband -- ibv_rc_pingpong for tools that address by LID\n"
      "  verbena run --profile minimal -- ibv_devinfo -v        a device with as little as there may be\n"
      "  verbena run --devices 2 -- ibv_devices\n"
      "  verbena run --beside -- ibv_devices                    the machine's devices, and verbena0\n"
      "  verbena run --ip 192.0.2.1 --key fabric.key -- PROGRAM  reachable from other machines by this "
      "address\n"
      "  verbena run --roce 192.0.2.1 --peers 192.0.2.0/28 -- PROGRAM   speaks RoCE v2 with rxe and "
      "adapters\n"
      "  verbena run --shared-heap -- ib_write_lat              WRITE, READ and atomics at the speed of "
      "memory\n"
      "  verbena run --chaos 7 -- PROGRAM                       late, lost and repeated requests; "
      "docs/FAULTS.md\n"
      "  verbena run --faults my.toml --link 25Gbps,2us -- PROGRAM\n"
      "  verbena run --node mine -- sh -c 'ib_write_bw & sleep 1; ib_write_bw localhost'");
  command->prefix_command();
  auto options = std::make_shared<RunOptions>();
  add_node_options(*command, options->node);
  add_heap_option(*command, options->node);
  CLI::Option* const faults =
      command->add_option("--faults", options->faults, "faults on purpose, by the rules of a file")
          ->type_name("FILE");
  CLI::Option* const chaos =
      command->add_option("--chaos", options->chaos, "faults that a correct program survives")
          ->type_name("SEED");
  faults->excludes(chaos);
  check_whole_number(*chaos);
  command->add_option("--link", options->link, "the time of a link: 25Gbps,2us")->type_name("RATE,LATENCY");
  command->callback([command, options, chaos, &line] {
    keep_node(*command, options->node);
    check_network_options(options->node);
    options->has_chaos = chaos->count() != 0;
    faults::Plan plan;
    Schedule schedule;
    const std::string text = plan_of(*options, &plan, &schedule) ? to_text(plan) : "";
    const std::vector<std::string> program = program_of(*command, line);
    if (program.empty()) throw UsageError{"run: which program? (verbena run -- PROGRAM ARGUMENTS...)"};
    line.action = [options, text, schedule, program] { return run(*options, text, schedule, program); };
  });
}

}  // namespace verbena::tool
