// SPDX-License-Identifier: BSD-2-Clause
#include "random/run.h"

#include "random/shrink.h"

namespace conformance::random {
namespace {

// To shrink one program. Runs, and the seconds of those that wait in vain, are counted. The time is not: a
// slow machine has to find the same program.
constexpr int most_runs = 150;
constexpr std::chrono::seconds most_waiting{30};

std::optional<Finding> carry_out(Machine& machine, const Program& program, const Claims& claims) {
  Model model(program.setup, claims);
  for (const Step& step : program.steps) {
    model.apply(step);
    if (auto finding = machine.run(step, model)) return finding;
    if (machine.has_ended()) break;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> run(Topology& topology, const Program& program, const Claims& claims) {
  Machine machine(topology, program.setup, claims);
  return carry_out(machine, program, claims);
}

Shrunk shrink_on(Topology& topology, Program program, Finding finding, const Claims& claims) {
  std::chrono::milliseconds waited{0};
  const auto deviates = [&](const Program& candidate) {
    if (waited >= most_waiting) return false;
    Machine machine(topology, candidate.setup, claims);
    auto found = carry_out(machine, candidate, claims);
    waited += machine.waited_in_vain();
    if (!found || found->about != finding.about) return false;
    finding = std::move(*found);
    return true;
  };
  Program least = shrink(std::move(program), claims, most_runs, deviates);
  return {std::move(least), std::move(finding)};
}

}  // namespace conformance::random
