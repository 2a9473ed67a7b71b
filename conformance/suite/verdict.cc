// SPDX-License-Identifier: BSD-2-Clause
#include "suite/verdict.h"

#include <algorithm>
#include <array>

namespace conformance {
namespace {

constexpr std::array<std::string_view, 4> names = {"CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"};

template <typename Concerns>
Verdict judge(const TestResult& result, Concerns concerns) {
  switch (result.end) {
    case TestResult::End::not_run:
      return Verdict::not_tested;
    case TestResult::End::crashed:
    case TestResult::End::hung:
      return Verdict::deviates;
    case TestResult::End::finished:
      break;
  }
  const auto has = [&](Finding::Kind kind) {
    return std::any_of(result.findings.begin(), result.findings.end(),
                       [&](const Finding& finding) { return finding.kind == kind && concerns(finding); });
  };
  if (has(Finding::Kind::deviation)) return Verdict::deviates;
  if (has(Finding::Kind::not_tested)) return Verdict::not_tested;
  if (has(Finding::Kind::not_claimed)) return Verdict::not_claimed;
  return Verdict::conforms;
}

}  // namespace

std::string_view name_of(Verdict verdict) { return names[static_cast<size_t>(verdict)]; }

std::optional<Verdict> verdict_named(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Verdict>(found - names.begin());
}

Verdict verdict_of(const TestResult& result) {
  return judge(result, [](const Finding&) { return true; });
}

Verdict verdict_of(const TestResult& result, ClauseId about) {
  return judge(result, [&](const Finding& finding) { return !finding.about || *finding.about == about; });
}

std::string detail_of(const TestResult& result, std::optional<ClauseId> about) {
  std::string out = result.how;
  for (const Finding& finding : result.findings) {
    if (about && finding.about && *finding.about != *about) continue;
    if (!out.empty()) out += '\n';
    out += finding.text;
  }
  return out;
}

void count_run(TestResult& result, const std::vector<ClauseId>& clauses) {
  result.runs = 1;
  result.deviations.clear();
  for (const ClauseId id : clauses)
    if (verdict_of(result, id) == Verdict::deviates) result.deviations[id.index()] = 1;
  result.failures = verdict_of(result) == Verdict::deviates;
}

// A finding is kept once for each clause and kind: thousands of runs that see the same leave one text.
void add_run(TestResult& result, TestResult more, const std::vector<ClauseId>& clauses) {
  count_run(more, clauses);
  if (more.failures > 0 && result.failures == 0) result.calls = more.calls;
  if (more.end != TestResult::End::finished && result.end == TestResult::End::finished) {
    result.end = more.end;
    result.how = more.how;
    result.calls = more.calls;
  }
  for (Finding& finding : more.findings) {
    const auto is_known = [&](const Finding& known) {
      return known.kind == finding.kind && known.about == finding.about;
    };
    if (std::none_of(result.findings.begin(), result.findings.end(), is_known))
      result.findings.push_back(std::move(finding));
  }
  for (const auto& [clause, count] : more.deviations) result.deviations[clause] += count;
  result.runs += more.runs;
  result.failures += more.failures;
  result.time = std::max(result.time, more.time);
}

Verdict combine(const std::vector<Verdict>& verdicts) {
  for (const Verdict verdict :
       {Verdict::deviates, Verdict::not_tested, Verdict::conforms, Verdict::not_claimed})
    if (std::find(verdicts.begin(), verdicts.end(), verdict) != verdicts.end()) return verdict;
  return Verdict::not_tested;
}

}  // namespace conformance
