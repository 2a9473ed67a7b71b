// SPDX-License-Identifier: BSD-2-Clause
#include "random/run.h"

#include <chrono>

#include "random/shrink.h"

namespace conformance::random {
namespace {

// To shrink one program. A run that waits in vain for a completion takes seconds.
constexpr int most_runs = 150;
constexpr std::chrono::milliseconds most_time{30'000};

}  // namespace

std::optional<Finding> run(Topology& topology, const Program& program, const Claims& claims) {
  Machine machine(topology, program.setup, claims);
  Model model(program.setup, claims);
  for (const Step& step : program.steps) {
    model.apply(step);
    if (auto finding = machine.run(step, model)) return finding;
    if (machine.has_ended()) break;
  }
  return std::nullopt;
}

Shrunk shrink_on(Topology& topology, Program program, Finding finding, const Claims& claims) {
  const auto end = std::chrono::steady_clock::now() + scaled(most_time);
  const auto deviates = [&](const Program& candidate) {
    if (std::chrono::steady_clock::now() > end) return false;
    auto found = run(topology, candidate, claims);
    if (!found || found->about != finding.about) return false;
    finding = std::move(*found);
    return true;
  };
  Program least = shrink(std::move(program), claims, most_runs, deviates);
  return {std::move(least), std::move(finding)};
}

}  // namespace conformance::random
