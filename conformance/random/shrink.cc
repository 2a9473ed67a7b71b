// SPDX-License-Identifier: BSD-2-Clause
//
// Delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002): chunks of
// half of the steps are left out, then of a quarter, down to single ones.
#include "random/shrink.h"

#include <algorithm>
#include <set>

#include "random/execute.h"
#include "suite/runner.h"

namespace conformance::random {
namespace {

constexpr size_t most_runs = 300;

std::set<size_t> deviating(const TestResult& result) {
  std::set<size_t> out;
  for (const auto& [clause, count] : result.deviations) out.insert(clause);
  return out;
}

class Shrinker {
 public:
  Shrinker(const Program& program, const TestResult& result, const Options& options)
      : options_(options), wanted_(deviating(result)), best_{program, result, 0} {
    options_.repeat = 1;
    options_.soak = 0;
  }

  Shrunk run() {
    for (size_t chunk = std::max<size_t>(best_.program.steps.size() / 2, 1); chunk > 0 && may_run();) {
      if (!leave_out(chunk)) chunk /= 2;
    }
    drop_idle_pairs();
    std::vector<Program> plainer;
    for (size_t i = 0; i < best_.program.steps.size(); ++i) {
      Program one = best_.program;
      Step& step = one.steps[i];
      step.has_imm = step.is_inline = false;
      step.is_signaled = true;
      plainer.push_back(one);
    }
    take_first(plainer);
    return std::move(best_);
  }

 private:
  bool may_run() const { return best_.runs < most_runs; }

  bool deviates_alike(const TestResult& result) const {
    const auto seen = deviating(result);
    return std::any_of(seen.begin(), seen.end(), [&](size_t clause) { return wanted_.contains(clause); });
  }

  // True if the program became shorter.
  bool leave_out(size_t chunk) {
    std::vector<Program> candidates;
    const auto& steps = best_.program.steps;
    for (size_t at = 0; at < steps.size(); at += chunk) {
      Program one = best_.program;
      one.steps.erase(one.steps.begin() + static_cast<ptrdiff_t>(at),
                      one.steps.begin() + static_cast<ptrdiff_t>(std::min(at + chunk, steps.size())));
      candidates.push_back(std::move(one));
    }
    return !best_.program.steps.empty() && take_first(candidates);
  }

  // A pair that lends its memory stays.
  void drop_idle_pairs() {
    Program one = best_.program;
    for (Step& step : one.steps) step.pair = static_cast<uint8_t>(step.pair % one.shapes.size());
    for (size_t pair = one.shapes.size(); pair-- > 1;) {
      const bool is_used = std::any_of(one.steps.begin(), one.steps.end(),
                                       [&](const Step& step) { return step.pair == pair; });
      if (is_used) continue;
      one.shapes.erase(one.shapes.begin() + static_cast<ptrdiff_t>(pair));
      for (Step& step : one.steps) step.pair = static_cast<uint8_t>(step.pair - (step.pair > pair));
    }
    if (one.shapes.size() < best_.program.shapes.size()) take_first({one});
  }

  // Runs all of them; the first that deviates alike is the best from now on.
  bool take_first(const std::vector<Program>& candidates) {
    std::vector<TestInfo> infos;
    for (size_t i = 0; i < candidates.size(); ++i)
      infos.push_back(
          test_of(std::make_shared<const Program>(candidates[i]), "Candidate" + std::to_string(i)));
    std::vector<const TestInfo*> selected;
    for (const TestInfo& info : infos) selected.push_back(&info);
    if (selected.empty()) return false;
    // The others need not run once one is found.
    const RunResults results = run_tests(selected, options_, [&](const Progress& progress) {
      if (deviates_alike(*progress.result)) throw Stop{"found"};
    });
    for (size_t i = 0; i < candidates.size(); ++i) {
      best_.runs += results.tests[i].runs;
      if (results.tests[i].runs == 0 || !deviates_alike(results.tests[i])) continue;
      best_.program = candidates[i];
      best_.result = results.tests[i];
      return true;
    }
    return false;
  }

  Options options_;
  std::set<size_t> wanted_;
  Shrunk best_;
};

}  // namespace

Shrunk shrink(const Program& program, const TestResult& result, const Options& options) {
  return Shrinker(program, result, options).run();
}

}  // namespace conformance::random
