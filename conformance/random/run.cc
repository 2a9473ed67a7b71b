// SPDX-License-Identifier: BSD-2-Clause
#include "random/run.h"

#include "random/shrink.h"

namespace conformance::random {
namespace {

constexpr int most_runs = 150;  // to shrink one program; each that waits in vain takes seconds

}  // namespace

std::optional<Finding> run(Device& device, const Program& program, const Claims& claims) {
  Machine machine(device, program.setup, claims);
  Model model(program.setup, claims);
  for (const Step& step : program.steps) {
    model.apply(step);
    if (auto finding = machine.run(step, model)) return finding;
  }
  return std::nullopt;
}

Shrunk shrink_on(Device& device, Program program, Finding finding, const Claims& claims) {
  const auto deviates = [&](const Program& candidate) {
    auto found = run(device, candidate, claims);
    if (!found || found->about != finding.about) return false;
    finding = std::move(*found);
    return true;
  };
  Program least = shrink(std::move(program), claims, most_runs, deviates);
  return {std::move(least), std::move(finding)};
}

}  // namespace conformance::random
