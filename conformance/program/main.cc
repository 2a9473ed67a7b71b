// SPDX-License-Identifier: BSD-2-Clause
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>

#include "suite/audit.h"
#include "suite/compare.h"
#include "suite/options.h"
#include "program/probe.h"
#include "suite/report.h"
#include "suite/runner.h"
#include "peer/serve.h"
#include "suite/test.h"
#include "support/link.h"

using namespace conformance;

namespace {

constexpr int ok = 0, deviations = 1, could_not_run = 2;

int print_audit() {
  const auto faults = audit();
  for (const std::string& fault : faults) std::cerr << fault << '\n';
  return faults.empty() ? ok : could_not_run;
}

std::vector<const TestInfo*> select(const Options& options) {
  std::vector<const TestInfo*> selected;
  for (const TestInfo& test : tests()) {
    const auto& wanted = options.chapters;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), test.chapter) == wanted.end()) continue;
    if (options.quick && test.traits.is_slow) continue;
    if (test.traits.is_disruptive && !options.allow_disruptive) continue;
    if (matches(options.filter, test.full_name())) selected.push_back(&test);
  }
  return selected;
}

int print_list(const std::vector<const TestInfo*>& selected) {
  for (const TestInfo* test : selected) {
    std::cout << test->full_name() << (test->traits.is_slow ? " [slow]" : "");
    for (const ClauseId id : test->clauses) std::cout << "\n    " << id.clause().id;
    std::cout << '\n';
  }
  size_t pending = 0, untestable = 0;
  for (const Clause& clause : clauses()) {
    pending += !clause.pending.empty();
    untestable += !clause.untestable.empty();
  }
  std::cout << selected.size() << " tests selected; " << clauses().size() << " clauses in all, " << pending
            << " pending, " << untestable << " untestable; chapters:";
  for (const Chapter& chapter : chapters()) std::cout << ' ' << chapter.key;
  std::cout << '\n';
  return ok;
}

int compare(const Options& options) {
  const Comparison comparison = compare_reports(options.reports);
  std::cout << to_text(comparison);
  if (options.compare_html.empty()) return ok;
  std::ofstream file(options.compare_html);
  file << to_html(comparison);
  file.close();
  if (!file) throw std::runtime_error("cannot write " + options.compare_html);
  return ok;
}

// On a terminal one line that changes; elsewhere a line for what does not conform.
void show(const Progress& progress) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  const Verdict verdict = verdict_of(*progress.result);
  if (terminal) std::cerr << "\r\033[K";
  if (verdict == Verdict::deviates)
    std::cerr << name_of(verdict) << ' ' << progress.test->full_name() << ": "
              << detail_of(*progress.result, std::nullopt) << '\n';
  if (!terminal) return;
  const double left = static_cast<double>(progress.elapsed.count()) / 1000.0 /
                      static_cast<double>(progress.done) *
                      static_cast<double>(progress.total - progress.done);
  std::cerr << '[' << progress.done << '/' << progress.total << "] about " << static_cast<int>(left) + 1
            << " s left, " << progress.test->full_name() << std::flush;
  if (progress.done == progress.total) std::cerr << "\r\033[K";
}

std::string now() {
  char text[32];
  const time_t seconds = time(nullptr);
  tm parts;
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
  return text;
}

std::set<std::string> tests_in_vain(const std::vector<const TestInfo*>& selected,
                                    const std::vector<Expectation>& expectations) {
  std::set<size_t> expected;
  for (const Expectation& expectation : expectations) expected.insert(expectation.clause.index());
  std::set<std::string> out;
  for (const TestInfo* test : selected)
    if (std::all_of(test->clauses.begin(), test->clauses.end(),
                    [&](ClauseId id) { return expected.count(id.index()) > 0; }))
      out.insert(test->full_name());
  return out;
}

// The topology, and what the peer says about its device. Throws std::runtime_error when there is no peer.
void add_topology(const Options& options, Facts& facts) {
  facts.emplace_back("topology", options.peer.empty() ? "loopback" : "pair with " + options.peer);
  if (options.peer.empty()) return;
  use_options(options);
  try {
    const auto link = StreamLink::to(options.peer, scaled(std::chrono::seconds(10)));
    for (const std::string& fact : link->peer().facts) {
      const size_t equals = fact.find('=');
      if (equals != std::string::npos)
        facts.emplace_back("peer_" + fact.substr(0, equals), fact.substr(equals + 1));
    }
  } catch (const Deviation& deviation) {
    throw std::runtime_error(deviation.text);
  }
}

int run(Options& options, const std::string& command) {
  const auto expectations =
      options.expectations.empty() ? std::vector<Expectation>() : read_expectations(options.expectations);
  const auto selected = select(options);
  if (selected.empty()) throw std::runtime_error("no test is selected");
  options.in_vain = tests_in_vain(selected, expectations);
  const std::string began = now();
  Facts facts = probe(options);
  add_topology(options, facts);
  const auto start = std::chrono::steady_clock::now();
  auto results = run_tests(selected, options, show);
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  Report report = make_report(selected, std::move(results), expectations);
  report.device = facts;
  report.command = command;
  report.began = began;
  report.seconds = static_cast<double>(time.count()) / 1000.0;
  std::cout << to_text(report);
  if (!options.report_dir.empty()) write_reports(report, options.report_dir);
  return report.summary.unexpected > 0 ? deviations : ok;
}

}  // namespace

int main(int argc, char** argv) {
  int status = ok;
  std::optional<Options> options = parse_options(argc, argv, status);
  if (!options) return status;
  std::string command = "verbs-conformance";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    if (options->audit) return print_audit();
    if (options->compare) return compare(*options);
    if (options->serve) return serve(*options), ok;
    if (options->list) return print_list(select(*options));
    return run(*options, command);
  } catch (const std::exception& error) {
    std::cerr << "verbs-conformance: " << error.what() << '\n';
    return could_not_run;
  }
}
